//! `Retry-After`: seconds, or a date. Pure: the date is read against the receiver's own clock where it tells it.

use std::time::Duration;

use http::{
    HeaderMap,
    header::{DATE, HeaderName, RETRY_AFTER},
};
use time::{OffsetDateTime, format_description::well_known::Rfc2822};

/// Whatever a receiver asks for, it is asked again within a day.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// How long the receiver wants to be left alone; absent when it did not say, or said nonsense.
pub(super) fn retry_after(headers: &HeaderMap, now: impl FnOnce() -> OffsetDateTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|letter| letter.is_ascii_digit()) {
        return Some(text.parse().map_or(LONGEST, Duration::from_secs).min(LONGEST));
    }
    let until = OffsetDateTime::parse(text, &Rfc2822).ok()?;
    let since = date(headers, &DATE).unwrap_or_else(now);
    Some(Duration::try_from(until - since).unwrap_or_default().min(LONGEST))
}

fn date(headers: &HeaderMap, name: &HeaderName) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(headers.get(name)?.to_str().ok()?, &Rfc2822).ok()
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    fn read(retry_after_text: &str, date_text: Option<&str>) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, retry_after_text.parse().unwrap());
        if let Some(text) = date_text {
            headers.insert(DATE, text.parse().unwrap());
        }
        retry_after(&headers, || datetime!(2026-11-15 10:00:00 UTC))
    }

    #[test]
    fn seconds_are_taken_as_they_are_up_to_a_day() {
        assert_eq!(read("0", None), Some(Duration::ZERO));
        assert_eq!(read(" 120 ", None), Some(Duration::from_secs(120)));
        assert_eq!(read("86401", None), Some(LONGEST));
        assert_eq!(read("99999999999999999999999999", None), Some(LONGEST));
    }

    #[test]
    fn a_date_is_read_against_the_clock_of_the_receiver() {
        let at = "Sun, 15 Nov 2026 10:01:00 GMT";
        assert_eq!(read(at, None), Some(Duration::from_secs(60)));
        assert_eq!(read(at, Some("Sun, 15 Nov 2026 10:00:50 GMT")), Some(Duration::from_secs(10)));
        assert_eq!(read("Sun, 15 Nov 2020 10:01:00 GMT", None), Some(Duration::ZERO));
        assert_eq!(read("Sun, 15 Nov 2099 10:01:00 GMT", None), Some(LONGEST));
    }

    #[test]
    fn nonsense_is_nothing() {
        for text in ["", "-1", "1.5", "soon", "2026-11-15T10:00:00Z", "1 2", "+5"] {
            assert_eq!(read(text, None), None, "{text}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), || datetime!(2026-11-15 10:00:00 UTC)), None);
    }
}
