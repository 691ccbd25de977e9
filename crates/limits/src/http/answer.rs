//! A decision on the wire: one buffer for the body and all header values, no formatting machinery.
//!
//! `RateLimit` and `RateLimit-Policy` are those of the IETF's draft 11 (structured fields), beside the older
//! `X-RateLimit-*` trio and `Retry-After`. Seconds are rounded up: nobody is told to come too early.

use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use bytes::BytesMut;
use gate::limiter::Decision;
use platform::http_server::Reply;
use serde::Serialize;
use std::time::Duration;
use utoipa::ToSchema;

use crate::engine::{Answer, Reserved};

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// What a check answers.
#[derive(Serialize, ToSchema)]
pub(super) struct CheckOut {
    /// May it go ahead?
    allowed: bool,
    /// What can pass at once when nothing was used.
    #[schema(example = 100)]
    limit: u64,
    /// What could pass now.
    #[schema(example = 99)]
    remaining: u64,
    /// When the same call would pass, if nobody else came; 0 if it was allowed.
    #[schema(example = 0)]
    retry_after_ms: u64,
    /// Until the key is as if never used.
    #[schema(example = 600)]
    reset_after_ms: u64,
    /// The rule that decided.
    #[schema(example = "login")]
    rule: String,
    /// Decided by this replica alone, because Redis could not be asked.
    degraded: bool,
    /// Only on a shadow rule that would have refused.
    #[schema(required = false)]
    shadow_denied: bool,
}

/// The text of one decision.
pub(super) fn write_body(out: &mut BytesMut, answer: &Answer) {
    write_fields(out, answer);
    out.extend_from_slice(b"}");
}

/// The same, still open.
fn write_fields(out: &mut BytesMut, answer: &Answer) {
    let Answer { rule, decision, .. } = answer;
    let is_allowed = answer.is_allowed();
    out.extend_from_slice(if is_allowed { b"{\"allowed\":true,\"limit\":" } else { b"{\"allowed\":false,\"limit\":" });
    write_number(out, decision.limit);
    out.extend_from_slice(b",\"remaining\":");
    write_number(out, decision.remaining);
    out.extend_from_slice(b",\"retry_after_ms\":");
    write_number(out, if is_allowed { 0 } else { decision.retry_after().map_or(0, milliseconds) });
    out.extend_from_slice(b",\"reset_after_ms\":");
    write_number(out, milliseconds(decision.reset_after));
    out.extend_from_slice(b",\"rule\":");
    out.extend_from_slice(rule.json_name.as_bytes());
    out.extend_from_slice(if decision.degraded { b",\"degraded\":true" } else { b",\"degraded\":false" });
    if answer.is_shadow_denied() {
        out.extend_from_slice(b",\"shadow_denied\":true");
    }
}

/// One decision with its headers; `denied` is the status of a refusal.
pub(super) fn respond(answer: &Answer, denied: StatusCode) -> Response {
    let mut out = BytesMut::with_capacity(512);
    write_body(&mut out, answer);
    with_headers(out, answer, denied)
}

/// The same for a reservation, with its id.
pub(super) fn respond_reserved(reserved: &Reserved, lasts: Duration, denied: StatusCode) -> Response {
    let mut out = BytesMut::with_capacity(640);
    write_fields(&mut out, &reserved.answer);
    if let Some(id) = &reserved.id {
        out.extend_from_slice(b",\"id\":\"");
        out.extend_from_slice(id.as_bytes());
        out.extend_from_slice(b"\",\"expires_in_ms\":");
        write_number(&mut out, milliseconds(lasts));
    }
    out.extend_from_slice(b"}");
    with_headers(out, &reserved.answer, denied)
}

/// The same as [`respond`], for the lane.
pub(super) fn reply(reply: &mut Reply, answer: &Answer, denied: StatusCode) {
    reply.status = if answer.is_allowed() { StatusCode::OK } else { denied };
    write_body(&mut reply.body, answer);
    each_header(answer, |name, write| {
        let out = &mut reply.header_lines;
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        write(out);
        out.extend_from_slice(b"\r\n");
    });
}

fn with_headers(mut out: BytesMut, answer: &Answer, denied: StatusCode) -> Response {
    let mut response = Response::new(Body::from(out.split().freeze()));
    *response.status_mut() = if answer.is_allowed() { StatusCode::OK } else { denied };
    let headers = response.headers_mut();
    headers.reserve(8);
    each_header(answer, |name, write| {
        write(&mut out);
        // Digits and names that were made for it: always a header's value.
        if let Ok(value) = HeaderValue::from_maybe_shared(out.split().freeze()) {
            headers.insert(name, value);
        }
    });
    response
}

/// Every header of a decision, in order, with what writes its value.
fn each_header(answer: &Answer, mut insert: impl FnMut(HeaderName, &dyn Fn(&mut BytesMut))) {
    let Decision { limit, remaining, reset_after, .. } = answer.decision;
    insert(header::CONTENT_TYPE, &|out| out.extend_from_slice(b"application/json"));
    insert(RATE_LIMIT_POLICY, &|out| write_policy(out, answer));
    insert(RATE_LIMIT, &|out| {
        out.extend_from_slice(answer.rule.quoted_name.as_bytes());
        out.extend_from_slice(b";r=");
        write_number(out, remaining);
        out.extend_from_slice(b";t=");
        write_number(out, seconds(reset_after));
    });
    insert(LIMIT, &|out| write_number(out, limit));
    insert(REMAINING, &|out| write_number(out, remaining));
    insert(RESET, &|out| write_number(out, seconds(reset_after)));
    if let (false, Some(retry_after)) = (answer.is_allowed(), answer.decision.retry_after()) {
        insert(header::RETRY_AFTER, &|out| write_number(out, seconds(retry_after)));
    }
}

/// `"login";q=100;w=60`. A window that is not whole seconds cannot be said and is left out.
fn write_policy(out: &mut BytesMut, answer: &Answer) {
    out.extend_from_slice(answer.rule.quoted_name.as_bytes());
    out.extend_from_slice(b";q=");
    write_number(out, answer.policy.limit());
    let window = answer.policy.window();
    if window.subsec_nanos() == 0 && !window.is_zero() {
        out.extend_from_slice(b";w=");
        write_number(out, window.as_secs());
    }
}

pub(super) fn write_number(out: &mut BytesMut, mut number: u64) {
    let (mut digits, mut at) = ([0_u8; 20], 20);
    loop {
        at -= 1;
        digits[at] = b"0123456789"[usize::try_from(number % 10).unwrap_or(0)];
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

pub(super) fn milliseconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000).saturating_add(u64::from(duration.subsec_nanos().div_ceil(1_000_000)))
}

pub(super) fn seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}
