//! `GET /v1/limits/keys` and `POST /v1/limits/explain`: who was limited, and by which rule.

use axum::extract::State;
use gate::limiter;
use platform::{
    config::Span,
    http::{Json, Query, limit_within},
    problem::Problem,
};
use serde::{Deserialize, Serialize};
use tenancy::{door::Caller, scope::Scope};
use utoipa::{IntoParams, ToSchema};

use crate::{
    Limits,
    engine::Ask,
    error::Error,
    rule::{Algorithm, Rule, Source},
    seen::Count,
};

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct KeysQuery {
    /// By how often they were refused, or checked.
    #[serde(default)]
    #[param(inline)]
    sort: Sort,
    /// How many to return, 1 to 256.
    #[param(default = 50, minimum = 1, maximum = 256)]
    limit: Option<u32>,
}

#[derive(Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Sort {
    #[default]
    Denied,
    Checked,
}

/// The keys that came most to this replica since it started.
#[derive(Serialize, ToSchema)]
pub(super) struct KeysOut {
    data: Vec<Count>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExplainIn {
    #[schema(example = "login:203.0.113.7")]
    key: String,
}

/// Which rule speaks for a key, and why.
#[derive(Serialize, ToSchema)]
pub(super) struct ExplainOut {
    key: String,
    /// Absent if no rule fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<Speaks>,
    /// Rules that fit as well, and why they do not speak.
    others: Vec<Silent>,
}

#[derive(Serialize, ToSchema)]
struct Speaks {
    #[serde(flatten)]
    named: Named,
    why: String,
    algorithm: Algorithm,
    limit: u64,
    #[schema(value_type = String, example = "1m")]
    window: Span,
    /// What can pass at once.
    burst: u64,
    shadow: bool,
    /// This very key has numbers of its own.
    overridden: bool,
    /// What is left of it now; nothing was counted to find out.
    remaining: u64,
}

#[derive(Serialize, ToSchema)]
struct Named {
    id: String,
    /// The key or the pattern of the rule.
    pattern: String,
    /// `api` or `file`.
    source: &'static str,
}

#[derive(Serialize, ToSchema)]
struct Silent {
    #[serde(flatten)]
    named: Named,
    why_not: String,
}

/// List the keys that were refused or checked most
///
/// As this replica saw them since it started; at most 256 keys are remembered.
#[utoipa::path(get, path = "/v1/limits/keys", tag = "limits", params(KeysQuery), responses((status = 200, body = KeysOut)))]
pub(super) async fn list(
    State(limits): State<Limits>,
    caller: Caller,
    Query(query): Query<KeysQuery>,
) -> Result<Json<KeysOut>, Problem> {
    caller.require(Scope::LimitsRead)?;
    let limit = limit_within(query.limit, 256)?;
    let by_denied = matches!(query.sort, Sort::Denied);
    Ok(Json(KeysOut { data: limits.engine().seen().top(&caller.tenant, by_denied, limit as usize) }))
}

/// Which rule would decide over a key, and why? Counts nothing
#[utoipa::path(post, path = "/v1/limits/explain", tag = "limits", request_body = ExplainIn, responses(
    (status = 200, body = ExplainOut), (status = 422, body = Problem)))]
pub(super) async fn explain(
    State(limits): State<Limits>,
    caller: Caller,
    Json(ExplainIn { key }): Json<ExplainIn>,
) -> Result<Json<ExplainOut>, Problem> {
    caller.require(Scope::LimitsRead)?;
    let found = match limits.engine().find(&caller.tenant, &key) {
        Ok(found) => found,
        Err(Error::NoRule { .. }) => return Ok(Json(ExplainOut { key, rule: None, others: Vec::new() })),
        Err(error) => return Err(error.into()),
    };
    let book = limits.engine().book();
    let own = book.tenants.get(&*caller.tenant).map(|rules| rules.all(&key)).unwrap_or_default();
    let fitting: Vec<_> = own.into_iter().chain(book.file.all(&key)).collect();
    let others = fitting.iter().skip(1).map(|rule| silent(rule, &found.rule)).collect();
    let peek = limits.engine().peek(&caller.tenant, Ask { key: &key, cost: Some(1) }).await?;
    let speaks = Speaks {
        named: named(&found.rule),
        why: why(&found.rule, fitting.len()),
        algorithm: algorithm(found.policy.algorithm()),
        limit: found.policy.limit(),
        window: Span(found.policy.window()),
        burst: found.policy.capacity(),
        shadow: found.rule.is_shadow,
        overridden: found.rule.has_override(&key),
        remaining: peek.decision.remaining,
    };
    Ok(Json(ExplainOut { key, rule: Some(speaks), others }))
}

fn named(rule: &Rule) -> Named {
    let source = match rule.source {
        Source::Api => "api",
        Source::File => "file",
    };
    Named { id: rule.name.as_ref().to_owned(), pattern: rule.pattern.as_str().to_owned(), source }
}

fn why(rule: &Rule, fitting: usize) -> String {
    let kind = if rule.pattern.is_exact() { "it names this very key" } else { "its pattern fits" };
    match fitting {
        1 => format!("{kind}, and no other rule does"),
        _ => format!("{kind}, and it comes before the others that fit"),
    }
}

/// Why a rule that fits does not speak.
fn silent(rule: &Rule, winner: &Rule) -> Silent {
    let why_not = if rule.source > winner.source {
        "a tenant's own rule comes before those of the file".to_owned()
    } else if winner.pattern.is_exact() && !rule.pattern.is_exact() {
        "an exact key comes before patterns".to_owned()
    } else if winner.pattern.prefix().len() > rule.pattern.prefix().len() {
        format!("a longer beginning comes first: {:?} before {:?}", winner.pattern.prefix(), rule.pattern.prefix())
    } else if rule.source == Source::Api {
        "another with the same beginning was made first".to_owned()
    } else {
        "another with the same beginning stands before it in the file".to_owned()
    };
    Silent { named: named(rule), why_not }
}

fn algorithm(algorithm: limiter::Algorithm) -> Algorithm {
    match algorithm {
        limiter::Algorithm::SlidingLog => Algorithm::SlidingLog,
        limiter::Algorithm::TokenBucket => Algorithm::TokenBucket,
        limiter::Algorithm::Gcra => Algorithm::Gcra,
        limiter::Algorithm::SlidingCounter => Algorithm::SlidingCounter,
        limiter::Algorithm::FixedWindow => Algorithm::FixedWindow,
        limiter::Algorithm::LeakyBucket => Algorithm::LeakyBucket,
    }
}
