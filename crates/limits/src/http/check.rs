//! `/v1/limits/check` and its kin: one key, many keys, a look, a reset.

use std::borrow::Cow;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::BytesMut;
use platform::{
    http::{Object, Path},
    problem::Problem,
};
use serde::Deserialize;
use tenancy::{door::Caller, scope::Scope};
use utoipa::ToSchema;

use super::{
    answer::{self, CheckOut},
    question::{CheckQuery, Question},
};
use crate::{
    Limits,
    engine::{Answer, Ask, MOST_TOGETHER},
};

/// Checks of one request, each for itself.
const MOST_CHECKS: usize = 1_000;

/// A question: may this go ahead?
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckIn<'a> {
    #[serde(borrow)]
    #[schema(value_type = String, example = "login:203.0.113.7")]
    key: Cow<'a, str>,
    /// As the rule says if absent, and that is 1 unless it says otherwise.
    #[schema(example = 1, minimum = 1)]
    cost: Option<u64>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchIn<'a> {
    /// Up to 1,000, or up to 16 if atomic.
    #[serde(borrow)]
    #[schema(value_type = Vec<CheckIn>)]
    checks: Vec<Object<CheckIn<'a>>>,
    /// All are counted, or none is.
    #[serde(default)]
    atomic: bool,
}

/// The answers, in the order of the checks.
#[derive(ToSchema)]
#[expect(dead_code, reason = "written by hand, described here")]
pub(super) struct BatchOut {
    /// Are all of them allowed?
    allowed: bool,
    results: Vec<CheckOut>,
}

impl<'a> From<&'a CheckIn<'_>> for Ask<'a> {
    fn from(check: &'a CheckIn<'_>) -> Self {
        Ask { key: &check.key, cost: check.cost }
    }
}

/// May this go ahead? If so it is counted
#[utoipa::path(post, path = "/v1/limits/check", tag = "limits", request_body = CheckIn, params(CheckQuery), responses(
    (status = 200, body = CheckOut), (status = 404, description = "no rule speaks for the key", body = Problem), (status = 422, body = Problem),
    (status = 429, description = "denied, with on_deny=429", body = CheckOut)))]
pub(super) async fn check(State(limits): State<Limits>, question: Question) -> Result<Response, Problem> {
    let check: CheckIn<'_> = question.read()?;
    let answer = limits.engine().check(&question.tenant, Ask::from(&check)).await?;
    Ok(answer::respond(&answer, question.denied))
}

/// Could this go ahead? Counts nothing
#[utoipa::path(post, path = "/v1/limits/peek", tag = "limits", request_body = CheckIn, params(CheckQuery), responses(
    (status = 200, body = CheckOut), (status = 404, description = "no rule speaks for the key", body = Problem), (status = 422, body = Problem),
    (status = 429, description = "denied, with on_deny=429", body = CheckOut)))]
pub(super) async fn peek(State(limits): State<Limits>, question: Question) -> Result<Response, Problem> {
    let check: CheckIn<'_> = question.read()?;
    let answer = limits.engine().peek(&question.tenant, Ask::from(&check)).await?;
    Ok(answer::respond(&answer, question.denied))
}

/// Many keys at once: each for itself, or all or nothing
///
/// If one of the checks is wrong (no rule, an empty key, a cost that can never pass), nothing at all is counted.
#[utoipa::path(post, path = "/v1/limits/check-batch", tag = "limits", request_body = BatchIn, params(CheckQuery), responses(
    (status = 200, body = BatchOut), (status = 404, description = "no rule speaks for a key", body = Problem), (status = 422, body = Problem),
    (status = 429, description = "one of them denied, with on_deny=429", body = BatchOut)))]
pub(super) async fn check_batch(State(limits): State<Limits>, question: Question) -> Result<Response, Problem> {
    let batch: BatchIn<'_> = question.read()?;
    let most = if batch.atomic { MOST_TOGETHER } else { MOST_CHECKS };
    if batch.checks.is_empty() {
        return Err(Problem::invalid("checks", format!("there are none: send 1 to {most}")));
    }
    if batch.checks.len() > most {
        let detail = format!("{} checks are too many: send 1 to {most}", batch.checks.len());
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "too_many_keys", detail).field("checks"));
    }
    let asks: Vec<Ask<'_>> = batch.checks.iter().map(|Object(check)| Ask::from(check)).collect();
    let answers = match batch.atomic {
        true => limits.engine().check_all(&question.tenant, &asks).await,
        false => limits.engine().check_each(&question.tenant, &asks).await,
    };
    Ok(respond_batch(&answers?, question.denied))
}

/// Forget what was counted of a key
#[utoipa::path(delete, path = "/v1/limits/keys/{key}", tag = "limits", params(("key" = String, Path, description = "percent-encoded: %2F for a slash")), responses(
    (status = 204), (status = 404, description = "no rule speaks for the key", body = Problem), (status = 503, description = "Redis does not answer", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn reset(
    State(limits): State<Limits>,
    caller: Caller,
    Path(key): Path<String>,
) -> Result<StatusCode, Problem> {
    caller.require(Scope::LimitsWrite)?;
    if limits.engine().reset(&caller.tenant, &key).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(Problem::unavailable("redis_unavailable", "Redis does not answer, so only this replica forgot; try again", 5))
}

fn respond_batch(answers: &[Answer], denied: StatusCode) -> Response {
    let is_allowed = answers.iter().all(Answer::is_allowed);
    let mut out = BytesMut::with_capacity(32 + answers.len() * 160);
    let start: &[u8] =
        if is_allowed { b"{\"allowed\":true,\"results\":[" } else { b"{\"allowed\":false,\"results\":[" };
    out.extend_from_slice(start);
    for (index, answer) in answers.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(b",");
        }
        answer::write_body(&mut out, answer);
    }
    out.extend_from_slice(b"]}");
    let status = if is_allowed { StatusCode::OK } else { denied };
    let json = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    let mut response = (status, json, Body::from(out.freeze())).into_response();
    // Whoever comes again when the last of them has room finds room in all.
    let refused = answers.iter().filter(|answer| !answer.is_allowed());
    if let Some(longest) = refused.filter_map(|answer| answer.decision.retry_after()).max() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(answer::seconds(longest)));
    }
    response
}
