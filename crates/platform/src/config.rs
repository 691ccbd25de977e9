//! How values are written in configuration and in requests, and the one error that names the key and the fix.

use std::{fmt, net::SocketAddr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// What is wrong with a setting. `key` is the dotted path of `config/default.toml`.
#[derive(Debug, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct Invalid {
    pub key: String,
    pub problem: String,
}

impl Invalid {
    pub fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Invalid { key: key.into(), problem: problem.into() }
    }
}

/// What `"10years"` is read as: with the days of leap years.
pub const TEN_YEARS: Duration = Duration::from_secs(10 * 31_557_600);

/// A duration written as `"250ms"`, `"30s"` or `"1h 30m"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl Span {
    /// The duration, if it lies between the bounds (both allowed).
    pub fn within(self, key: &str, least: Duration, most: Duration) -> Result<Duration, Invalid> {
        if self.0 < least || self.0 > most {
            return Err(Invalid::new(
                key,
                format!("{self} is out of range: use a duration from {} to {}", Span(least), Span(most)),
            ));
        }
        Ok(self.0)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", humantime::format_duration(self.0))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        duration(&text).map(Span).ok_or_else(|| {
            D::Error::custom(format!("\"{text}\" is not a duration: write one such as \"250ms\", \"30s\" or \"5m\""))
        })
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Nobody writes more; and humantime panics at sums of some 500 billion years, which these two bounds keep away. It reads over
/// spaces within a number.
const LONGEST_DURATION: usize = 64;
const MOST_DIGITS: usize = 11;

pub fn duration(text: &str) -> Option<Duration> {
    let digits = |number: &str| number.chars().filter(char::is_ascii_digit).count();
    let is_sane =
        text.len() <= LONGEST_DURATION && text.split(char::is_alphabetic).all(|number| digits(number) <= MOST_DIGITS);
    if is_sane { humantime::parse_duration(text).ok() } else { None }
}

/// A number of bytes written as `"64KiB"`, `"1MiB"` or `"512"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub usize);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_size(&text).map(Size).ok_or_else(|| {
            D::Error::custom(format!("\"{text}\" is not a size: write one such as \"512\", \"64KiB\" or \"1MiB\""))
        })
    }
}

fn parse_size(text: &str) -> Option<usize> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match text[digits..].trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    text[..digits].parse::<usize>().ok()?.checked_mul(unit)
}

/// Checks `"ip:port"`: a listener needs a literal address.
pub fn address(key: &str, text: &str) -> Result<SocketAddr, Invalid> {
    text.parse().map_err(|_| {
        Invalid::new(
            key,
            format!(
                "\"{text}\" is not an address to listen on: write an IP address and a port, such as \"127.0.0.1:8080\" or \"[::]:8080\""
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first two of these made humantime panic: a caller's 422 was a 500.
    #[test]
    fn a_duration_that_no_clock_shows_is_refused() {
        for absurd in [
            "18446744073709551615s 1000ms",
            "18446744073 709551615s 1000ms",
            "584542046090years 7months 15days 17h 30m 28s 1000ms",
            &"1s ".repeat(40),
        ] {
            assert_eq!(duration(absurd), None, "{absurd}");
        }
        assert!(duration(&"99999999999y".repeat(5)).is_some(), "the most that is read, and no panic");
        assert_eq!(duration("1h 30m"), Some(Duration::from_secs(5400)));
        assert_eq!(duration("10000000000ns"), Some(Duration::from_secs(10)));
    }

    #[test]
    fn sizes_are_read_with_their_unit() {
        assert_eq!(parse_size("512"), Some(512));
        assert_eq!(parse_size("64KiB"), Some(65_536));
        assert_eq!(parse_size("1 MiB"), Some(1_048_576));
        for wrong in ["", "MiB", "1MB", "-1", "1.5MiB", "99999999999999999999", "18446744073709551615GiB"] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn ten_years_are_what_they_are_written_as() {
        assert_eq!(duration("10years"), Some(TEN_YEARS));
        assert_eq!(Span(TEN_YEARS).to_string(), "10years");
    }

    #[test]
    fn a_span_out_of_bounds_names_key_and_range() {
        let error =
            Span(Duration::ZERO).within("server.header_timeout", Duration::from_secs(1), Duration::from_secs(60));
        assert_eq!(
            error.unwrap_err().to_string(),
            "server.header_timeout: 0s is out of range: use a duration from 1s to 1m"
        );
    }
}
