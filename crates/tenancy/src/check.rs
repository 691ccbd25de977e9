//! What may stand in a tenant or key, whoever writes it: the API and the command line ask here. Pure.
//!
//! An error is the sentence that says what is allowed.

use std::time::Duration;

use platform::config::TEN_YEARS;

/// Live at one time, of one tenant. Replacing one is always possible, so that with their grace times there may be twice
/// as many.
pub const MOST_KEYS: i64 = 1000;

const MAX_GRACE: Duration = Duration::from_secs(30 * 24 * 3600);

/// The name without the spaces around it.
pub fn name(name: &str) -> Result<&str, &'static str> {
    let name = name.trim();
    if name.is_empty() || name.chars().count() > 200 || name.chars().any(char::is_control) {
        return Err("a name has 1 to 200 characters, none of them a control character");
    }
    Ok(name)
}

/// Whether a tenant that has so many live keys may have one more.
pub fn room(live_keys: i64) -> Result<(), String> {
    if live_keys >= MOST_KEYS {
        return Err(format!("a tenant may have {MOST_KEYS} live keys: revoke some, or replace one by rotating it"));
    }
    Ok(())
}

/// How long a key may live.
pub fn ttl(ttl: Duration) -> Result<Duration, &'static str> {
    if ttl.is_zero() || ttl > TEN_YEARS {
        return Err("a key can live longer than 0s and at most ten years");
    }
    Ok(ttl)
}

/// How long a replaced key may stay valid.
pub fn grace(grace: Duration) -> Result<Duration, &'static str> {
    if grace > MAX_GRACE {
        return Err("the grace time can be at most 30 days");
    }
    Ok(grace)
}
