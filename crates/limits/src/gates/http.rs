//! `/v1/gates`: enter, exit, renew, look, list, policies and orders by hand.

use std::time::Duration;

use axum::{
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use gate::{
    breaker::{Force, View},
    gate::{Exit, Outcome},
};
use platform::{
    config::Span,
    http::{Json, OptionalJson, Page, PageQuery, Path, Query},
    problem::Problem,
};
use serde::{Deserialize, Serialize};
use tenancy::{door::Caller, scope::Scope};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{Entered, Gates, policy::Written, refuser};

/// To be put behind the door.
pub fn routes() -> OpenApiRouter<Gates> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(look))
        .routes(routes!(enter))
        .routes(routes!(exit))
        .routes(routes!(renew))
        .routes(routes!(put_policy, delete_policy))
        .routes(routes!(put_override))
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct EnterIn {
    /// What the call costs of the rate; 1 if absent.
    #[schema(minimum = 1, example = 1)]
    cost: Option<u64>,
    /// How the target is protected where no policy was stored for it.
    policy: Option<Written>,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct EnterQuery {
    /// The status of a refusal: 200, or 429.
    #[param(default = 200, example = 429)]
    on_deny: Option<u16>,
}

/// A pass, or by what it was refused.
#[derive(Debug, Serialize, ToSchema)]
struct EnterOut {
    /// Show it to `exit` and `renew`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pass: Option<String>,
    /// Exit or renew within this time, or the pass is over by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_ms: Option<u64>,
    /// This call finds out whether the target is back.
    #[serde(skip_serializing_if = "Option::is_none")]
    probe: Option<bool>,
    /// `rate`, `circuit` or `concurrency`.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused_by: Option<&'static str>,
    /// When asking again makes sense.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    /// What is left of the rate now.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_remaining: Option<u64>,
    /// Whose policy decided: `stored`, `given` (by this call) or `default`.
    policy: &'static str,
    /// Decided by this replica alone, because Redis did not answer.
    degraded: bool,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ExitIn {
    pass: String,
    outcome: OutcomeIn,
    /// How long the call took, for circuits that count slow calls.
    latency_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum OutcomeIn {
    Success,
    Failure,
    /// The call was not made, or says nothing about the target.
    Ignored,
}

#[derive(Debug, Serialize, ToSchema)]
struct ExitOut {
    /// Was the pass still held? If not, nothing was freed and nothing was counted.
    counted: bool,
    /// Why it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'static str>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RenewIn {
    pass: String,
}

#[derive(Debug, Serialize, ToSchema)]
struct RenewOut {
    /// Is the pass held for another lease? If not, somebody else may have its place.
    renewed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_ms: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
struct GateOut {
    target: String,
    policy: Written,
    /// Whose policy that is: `stored` or `default`.
    policy_source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    circuit: Option<CircuitOut>,
    /// Passes that are out.
    held: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<RateOut>,
    /// Redis does not answer; this is what this replica knows.
    degraded: bool,
}

#[derive(Debug, Serialize, ToSchema)]
struct CircuitOut {
    /// `closed`, `open`, `half_open`, `forced_open` or `forced_closed`.
    state: &'static str,
    /// Failures in a row, while closed.
    failures: u32,
    /// Calls, failures and slow calls in the window, while closed.
    window_calls: u64,
    window_failures: u64,
    window_slow: u64,
    /// Probes that are out, while half-open.
    probes: u32,
    /// How often it opened without a healthy stretch in between.
    trips: u32,
    /// When the next call may pass; 0 if one may now.
    retry_after_ms: u64,
}

#[derive(Debug, Serialize, ToSchema)]
struct RateOut {
    limit: u64,
    remaining: u64,
    reset_after_ms: u64,
}

#[derive(Debug, Serialize, ToSchema)]
struct ListedOut {
    target: String,
    /// As it was stored; absent where the default holds, or callers bring theirs.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<Written>,
    #[serde(with = "platform::moment")]
    #[schema(value_type = String, format = DateTime)]
    created_at: OffsetDateTime,
    /// To the hour.
    #[serde(with = "platform::moment")]
    #[schema(value_type = String, format = DateTime)]
    used_at: OffsetDateTime,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct OverrideIn {
    state: OverrideState,
    /// How long the order holds; 1h if absent, at most 30 days.
    #[serde(rename = "for")]
    #[schema(value_type = Option<String>, example = "10m")]
    lasting: Option<Span>,
}

#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum OverrideState {
    /// Refuse every call.
    Open,
    /// Let every call pass, whatever becomes of it.
    Closed,
    /// By its calls again, from a clean sheet.
    Automatic,
}

/// Enter: may a call to this target go ahead?
#[utoipa::path(post, path = "/v1/gates/{target}/enter", tag = "gates", params(EnterQuery), request_body = EnterIn, responses(
    (status = 200, body = EnterOut), (status = 422, body = Problem), (status = 429, description = "refused, with on_deny=429", body = EnterOut)))]
async fn enter(
    State(gates): State<Gates>,
    caller: Caller,
    Path(target): Path<String>,
    Query(query): Query<EnterQuery>,
    OptionalJson(body): OptionalJson<EnterIn>,
) -> Result<Response, Problem> {
    caller.require(Scope::LimitsCheck)?;
    let on_deny = match query.on_deny {
        None | Some(200) => StatusCode::OK,
        Some(429) => StatusCode::TOO_MANY_REQUESTS,
        Some(_) => return Err(Problem::invalid("on_deny", "a refusal can have the status 200 or 429")),
    };
    let entered = gates.enter(&caller.tenant, &target, body.cost.unwrap_or(1), body.policy.as_ref()).await?;
    Ok(answer(entered, on_deny))
}

fn answer(entered: Entered, on_deny: StatusCode) -> Response {
    match entered {
        Entered::Pass { pass, lease, is_probe, rate, source, degraded } => Json(EnterOut {
            pass: Some(pass),
            lease_ms: Some(milliseconds(lease)),
            probe: Some(is_probe),
            refused_by: None,
            retry_after_ms: None,
            rate_remaining: rate.map(|rate| rate.remaining),
            policy: source.name(),
            degraded,
        })
        .into_response(),
        Entered::Refused { refused, source } => {
            let out = EnterOut {
                pass: None,
                lease_ms: None,
                probe: None,
                refused_by: Some(refuser(refused.by)),
                retry_after_ms: refused.retry_after.map(milliseconds),
                rate_remaining: None,
                policy: source.name(),
                degraded: refused.degraded,
            };
            let mut response = (on_deny, Json(out)).into_response();
            if let Some(retry_after) = refused.retry_after {
                let seconds = retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0);
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            }
            response
        }
    }
}

/// Exit: the call is over, and this is how it went
#[utoipa::path(post, path = "/v1/gates/{target}/exit", tag = "gates", responses(
    (status = 200, body = ExitOut), (status = 422, body = Problem)))]
async fn exit(
    State(gates): State<Gates>,
    caller: Caller,
    Path(target): Path<String>,
    Json(body): Json<ExitIn>,
) -> Result<Json<ExitOut>, Problem> {
    caller.require(Scope::LimitsCheck)?;
    let latency = Duration::from_millis(body.latency_ms.unwrap_or(0));
    let exit = gates.exit(&caller.tenant, &target, &body.pass, body.outcome.into(), latency).await?;
    Ok(Json(ExitOut { counted: exit == Exit::Counted, detail: why_not(exit) }))
}

/// In words, for whoever reads the answer.
pub(crate) fn why_not(exit: Exit) -> Option<&'static str> {
    match exit {
        Exit::Counted => None,
        Exit::TooLate => {
            Some("the lease was over, or the pass was exited before: renew within lease_ms if a call takes longer")
        }
        Exit::Unheard => Some("Redis did not answer; the pass is free when its lease ends"),
    }
}

/// Renew: the call goes on
#[utoipa::path(post, path = "/v1/gates/{target}/renew", tag = "gates", responses(
    (status = 200, body = RenewOut), (status = 422, body = Problem)))]
async fn renew(
    State(gates): State<Gates>,
    caller: Caller,
    Path(target): Path<String>,
    Json(body): Json<RenewIn>,
) -> Result<Json<RenewOut>, Problem> {
    caller.require(Scope::LimitsCheck)?;
    let lease = gates.renew(&caller.tenant, &target, &body.pass).await?;
    Ok(Json(RenewOut { renewed: lease.is_some(), lease_ms: lease.map(milliseconds) }))
}

/// Look at a gate, without touching it
#[utoipa::path(get, path = "/v1/gates/{target}", tag = "gates", responses(
    (status = 200, body = GateOut), (status = 422, body = Problem)))]
async fn look(
    State(gates): State<Gates>,
    caller: Caller,
    Path(target): Path<String>,
) -> Result<Json<GateOut>, Problem> {
    caller.require(Scope::LimitsRead)?;
    shown(&gates, &caller, target).await
}

async fn shown(gates: &Gates, caller: &Caller, target: String) -> Result<Json<GateOut>, Problem> {
    let state = gates.state(&caller.tenant, &target).await?;
    Ok(Json(GateOut {
        target,
        policy: state.policy.written.clone(),
        policy_source: state.source.name(),
        circuit: state.circuit.as_ref().map(circuit),
        held: state.held,
        rate: state.rate.map(|rate| RateOut {
            limit: rate.limit,
            remaining: rate.remaining,
            reset_after_ms: milliseconds(rate.reset_after),
        }),
        degraded: state.degraded,
    }))
}

fn circuit(view: &View) -> CircuitOut {
    CircuitOut {
        state: view.state.name(),
        failures: view.failures,
        window_calls: view.counts.calls,
        window_failures: view.counts.failures,
        window_slow: view.counts.slow,
        probes: view.probes,
        trips: view.trips,
        retry_after_ms: milliseconds(view.retry_after),
    }
}

/// List gates: those with a stored policy, and those used in the last 30 days, by name
#[utoipa::path(get, path = "/v1/gates", tag = "gates", params(PageQuery), responses((status = 200, body = Page<ListedOut>)))]
async fn list(
    State(gates): State<Gates>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<ListedOut>>, Problem> {
    caller.require(Scope::LimitsRead)?;
    let Page { data, next } = gates.list(&caller.tenant, &query).await?;
    let listed = data.into_iter().map(|row| ListedOut {
        target: row.target,
        policy: row.policy,
        created_at: row.created_at,
        used_at: row.used_at,
    });
    Ok(Json(Page { data: listed.collect(), next }))
}

/// Store a gate's policy; every replica follows within a second
#[utoipa::path(put, path = "/v1/gates/{target}/policy", tag = "gates", request_body = Written, responses(
    (status = 200, body = GateOut), (status = 409, description = "too many are stored", body = Problem), (status = 422, body = Problem)))]
async fn put_policy(
    State(gates): State<Gates>,
    caller: Caller,
    Path(target): Path<String>,
    Json(policy): Json<Written>,
) -> Result<Json<GateOut>, Problem> {
    caller.require(Scope::LimitsWrite)?;
    gates.put_policy(&caller.actor, &caller.tenant, &target, &policy).await?;
    shown(&gates, &caller, target).await
}

/// Take a gate's policy away: the default holds again, or what callers bring
#[utoipa::path(delete, path = "/v1/gates/{target}/policy", tag = "gates", responses(
    (status = 204, description = "there is none now"), (status = 422, body = Problem)))]
async fn delete_policy(
    State(gates): State<Gates>,
    caller: Caller,
    Path(target): Path<String>,
) -> Result<StatusCode, Problem> {
    caller.require(Scope::LimitsWrite)?;
    gates.take_policy(&caller.actor, &caller.tenant, &target).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Force a gate's circuit open or closed for a time, or leave it to its calls again
#[utoipa::path(put, path = "/v1/gates/{target}/override", tag = "gates", request_body = OverrideIn, responses(
    (status = 200, body = GateOut), (status = 422, body = Problem)))]
async fn put_override(
    State(gates): State<Gates>,
    caller: Caller,
    Path(target): Path<String>,
    Json(body): Json<OverrideIn>,
) -> Result<Json<GateOut>, Problem> {
    caller.require(Scope::LimitsWrite)?;
    let force = match body.state {
        OverrideState::Open => Some(Force::Open),
        OverrideState::Closed => Some(Force::Closed),
        OverrideState::Automatic => None,
    };
    gates.order(&caller.actor, &caller.tenant, &target, force, body.lasting.map(|lasting| lasting.0)).await?;
    shown(&gates, &caller, target).await
}

impl From<OutcomeIn> for Outcome {
    fn from(outcome: OutcomeIn) -> Outcome {
        match outcome {
            OutcomeIn::Success => Outcome::Success,
            OutcomeIn::Failure => Outcome::Failure,
            OutcomeIn::Ignored => Outcome::Ignored,
        }
    }
}

/// Rounded up: who waits so long does not come too early.
pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
