//! The only place in dispatch that reads the wall clock: for the timestamp that receivers check.

use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) fn unix_seconds() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "signatures carry the sender's time")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
