//! Values of flags that are more than a word or a number; what is wrong is said with an example of what is right.

use std::time::Duration;

use dispatch::delivery::Status;
use platform::config::Size;
use serde::{
    Deserialize,
    de::{IntoDeserializer, value::Error},
};

/// No Tidegate takes a larger event.
const LARGEST: usize = 16 << 20;

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    platform::config::duration(text).ok_or_else(|| "write a duration such as 250ms, 30s or 5m".to_owned())
}

pub(super) fn size(text: &str) -> Result<usize, String> {
    let read: Result<Size, Error> = Size::deserialize(text.into_deserializer());
    let bytes = read.ok().map(|Size(bytes)| bytes).filter(|bytes| *bytes <= LARGEST);
    bytes.ok_or_else(|| "write a size such as 512, 1KiB or 1MiB, up to 16MiB".to_owned())
}

/// `1000/s`, or just `1000`.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").unwrap_or(text).trim().parse();
    let rate = number.ok().filter(|rate: &f64| (0.001..=1e9).contains(rate));
    rate.ok_or_else(|| "write a rate such as 1000/s".to_owned())
}

pub(super) fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "write a share from 0 to 1, such as 0.1".to_owned())
}

pub(super) fn status(text: &str) -> Result<Status, String> {
    let known = || Status::ALL.map(Status::as_str).join(", ");
    Status::parse(text).ok_or_else(|| format!("there are {}", known()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_people_write_them() {
        assert_eq!(duration("200ms"), Ok(Duration::from_millis(200)));
        assert_eq!(size("1KiB"), Ok(1024));
        assert_eq!((rate("1000/s"), rate("2.5")), (Ok(1000.0), Ok(2.5)));
        assert_eq!(share("0.1"), Ok(0.1));
        for wrong in ["", "x", "-1", "inf", "NaN", "0/s"] {
            assert!(rate(wrong).is_err() && duration(wrong).is_err() && size(wrong).is_err(), "{wrong}");
        }
        assert!(size("17MiB").is_err());
        assert!(share("1.1").is_err() && share("NaN").is_err());
    }
}
