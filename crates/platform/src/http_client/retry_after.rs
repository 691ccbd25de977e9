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
