//! What Envoy is told to add to the response: `RateLimit` and `RateLimit-Policy` of the IETF draft, the `X-RateLimit-*` that
//! most clients read, and `Retry-After` for those who were refused. They speak of the limit that binds most. Pure.

use std::{fmt::Write as _, time::Duration};

use super::proto::envoy::config::core::v3::HeaderValue;
use crate::engine::{Limited, Standing};

pub(super) fn headers(standings: &[Standing]) -> Vec<HeaderValue> {
    let limited = standings.iter().filter_map(|standing| match standing {
        Standing::Limited(limited) => Some(limited),
        Standing::Unlimited { .. } => None,
    });
    let Some(tightest) = limited.min_by_key(|limited| (!limited.is_over(), limited.remaining())) else {
        return Vec::new();
    };
    let name = structured_string(tightest);
    let (limit, window) = (tightest.requests_per_unit, tightest.unit.length().as_secs());
    let (remaining, reset) = (tightest.remaining(), seconds(tightest.reset_after()));
    let mut headers = Vec::with_capacity(6);
    headers.push(header("ratelimit-policy", format!("{name};q={limit};w={window}")));
    headers.push(header("ratelimit", format!("{name};r={remaining};t={reset}")));
    headers.push(header("x-ratelimit-limit", limit.to_string()));
    headers.push(header("x-ratelimit-remaining", remaining.to_string()));
    headers.push(header("x-ratelimit-reset", reset.to_string()));
    // Who asks for more than the limit, or meets a limit of 0, waits in vain.
    if let Some(wait) = tightest.decision.retry_after().filter(|_| tightest.is_over()) {
        headers.push(header("retry-after", seconds(wait).to_string()));
    }
    headers
}

fn header(key: &str, value: String) -> HeaderValue {
    HeaderValue { key: key.to_owned(), value, raw_value: Vec::new() }
}

/// The limit's name between quotes; what a structured field cannot hold is left out.
fn structured_string(limited: &Limited) -> String {
    let name = limited.limit.as_ref().map_or("override", |limit| limit.name.as_deref().unwrap_or(&limit.path));
    let mut text = String::with_capacity(name.len() + 2);
    text.push('"');
    for character in name.chars().filter(|character| (' '..='~').contains(character)) {
        if matches!(character, '"' | '\\') {
            text.push('\\');
        }
        text.write_char(character).unwrap_or_default();
    }
    text.push('"');
    text
}

/// Rounded up: who waits so long does not come too early.
fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}
