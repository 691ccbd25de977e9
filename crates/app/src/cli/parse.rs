//! Values of flags that are more than a word or a number; what is wrong is said with an example of what is right.

use std::time::Duration;

use dispatch::delivery::Status;
use platform::config::Size;
use serde::{
    Deserialize,
    de::{IntoDeserializer, value::Error},
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

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

/// No glob: lists are searched by whole types.
pub(super) fn exact_type(text: &str) -> Result<String, String> {
    if text.contains('*') {
        return Err(
            "one type is followed, whole and without `*`: write one such as order.created, or leave it out".to_owned()
        );
    }
    Ok(text.to_owned())
}

/// `2026-11-15T08:00:00Z`, or how long ago.
pub(super) fn moment(text: &str) -> Result<OffsetDateTime, String> {
    let written = OffsetDateTime::parse(text, &Rfc3339).ok();
    let ago =
        || platform::config::duration(text).and_then(|ago| OffsetDateTime::now_utc().checked_sub(ago.try_into().ok()?));
    written
        .or_else(ago)
        .ok_or_else(|| "write a time such as 2026-11-15T08:00:00Z, or how long ago, such as 2h".to_owned())
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
        assert_eq!(moment("1970-01-01T00:00:01Z").map(OffsetDateTime::unix_timestamp), Ok(1));
        assert!(moment("2h").unwrap() < OffsetDateTime::now_utc());
        assert!(moment("yesterday").is_err());
        for wrong in ["", "x", "-1", "inf", "NaN", "0/s"] {
            assert!(rate(wrong).is_err() && duration(wrong).is_err() && size(wrong).is_err(), "{wrong}");
        }
        assert!(size("17MiB").is_err());
        assert!(share("1.1").is_err() && share("NaN").is_err());
    }
}
