//! How long a receiver asks us to wait: `Retry-After` in seconds or as a date.
//!
//! A date is the receiver's clock against its own `Date` header where it sent one, so that clocks minutes apart do no harm.
//! Nonsense is no hint; a moment already past is a hint of zero; no hint is longer than [`RETRY_AFTER_CAP`].

use std::time::{Duration, SystemTime};

use super::outcome::RETRY_AFTER_CAP;

/// Longer values are not read: no date and no sensible number needs as much.
const LONGEST_VALUE: usize = 64;

/// Reads `Retry-After`. `date` is the answer's own `Date` header, `now` our clock for when it sent none.
pub fn parse(value: &[u8], date: Option<&[u8]>, now: SystemTime) -> Option<Duration> {
    let text = text(value)?;
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit is only a very long time.
        let seconds = text.parse().unwrap_or(u64::MAX);
        return Some(Duration::from_secs(seconds).min(RETRY_AFTER_CAP));
    }
    let until = httpdate::parse_http_date(text).ok()?;
    let from = date.and_then(|date| httpdate::parse_http_date(self::text(date)?).ok()).unwrap_or(now);
    Some(until.duration_since(from).unwrap_or_default().min(RETRY_AFTER_CAP))
}

fn text(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?.trim_matches([' ', '\t']);
    (!text.is_empty() && text.len() <= LONGEST_VALUE).then_some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 2023-11-14 22:13:20 UTC.
    const NOW: u64 = 1_700_000_000;

    fn read(value: &str) -> Option<u64> {
        parse(value.as_bytes(), None, SystemTime::UNIX_EPOCH + Duration::from_secs(NOW)).map(|wait| wait.as_secs())
    }

    #[test]
    fn seconds_and_all_three_forms_of_a_date_are_read() {
        assert_eq!(read("120"), Some(120));
        assert_eq!(read(" 0 "), Some(0));
        assert_eq!(read("Tue, 14 Nov 2023 22:14:20 GMT"), Some(60));
        assert_eq!(read("Tuesday, 14-Nov-23 22:14:20 GMT"), Some(60));
        assert_eq!(read("Tue Nov 14 22:14:20 2023"), Some(60));
    }

    #[test]
    fn the_past_is_now_and_the_far_future_is_a_day() {
        assert_eq!(read("Tue, 14 Nov 2023 22:13:00 GMT"), Some(0));
        assert_eq!(read("Fri, 31 Dec 9999 23:59:59 GMT"), Some(86_400));
        assert_eq!(read("86401"), Some(86_400));
        assert_eq!(read("99999999999999999999999999"), Some(86_400));
    }

    #[test]
    fn nonsense_is_no_hint() {
        for value in ["", " ", "-1", "+5", "1.5", "5s", "soon", "0x10", "Tue, 99 Nov 2023 22:14:20 GMT", "\u{663}"] {
            assert_eq!(read(value), None, "{value:?}");
        }
        assert_eq!(read(&"9".repeat(65)), None);
        assert_eq!(parse(b"\xff5", None, SystemTime::UNIX_EPOCH), None);
    }

    #[test]
    fn a_date_is_measured_by_the_receivers_own_clock() {
        let an_hour_off = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW + 3600);
        let date = Some(&b"Tue, 14 Nov 2023 22:13:20 GMT"[..]);
        let wait = parse(b"Tue, 14 Nov 2023 22:14:20 GMT", date, an_hour_off);
        assert_eq!(wait, Some(Duration::from_secs(60)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            value in proptest::collection::vec(any::<u8>(), 0..80),
            date in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..80)),
            now_s in 0..10_000_000_000_u64,
        ) {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(now_s);
            let wait = parse(&value, date.as_deref(), now);
            prop_assert!(wait.is_none_or(|wait| wait <= RETRY_AFTER_CAP));
        }

        #[test]
        fn any_near_date_is_read_or_refused(value in "[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT") {
            let wait = parse(value.as_bytes(), None, SystemTime::UNIX_EPOCH);
            prop_assert!(wait.is_none_or(|wait| wait <= RETRY_AFTER_CAP));
        }
    }
}
