//! What is done with a subscription by hand: pause and resume it, test it, rotate its secret, look at its limits.

use std::time::Duration;

use axum::{extract::State, http::StatusCode};
use platform::{
    http::{Json, NoBody, OptionalJson, Path},
    id,
    problem::Problem,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use tenancy::{door::Caller, scope::Scope};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::subscriptions::{MOST_TRIES, busy, compiled, found, readable, require_room, show};
use crate::{
    Dispatch,
    catalog::Endpoint,
    delivery::SigningSecret,
    error::Error,
    intake::EventIn,
    job::sweep::TEST_EVENT,
    model::{Event, GateView, Signatures, Subscription},
};

const OVERLAP: Duration = Duration::from_secs(24 * 3600);

pub(super) fn routes() -> OpenApiRouter<Dispatch> {
    OpenApiRouter::new()
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(rotate_secret))
        .routes(routes!(test))
        .routes(routes!(gate))
}

/// Pause a subscription
///
/// Nothing is sent to it. What waits for it goes on waiting, and so does what comes in meanwhile, until it is resumed.
#[utoipa::path(post, path = "/v1/subscriptions/{subscription}/pause", tag = "subscriptions", responses(
    (status = 200, body = Subscription), (status = 404, body = Problem)))]
async fn pause(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Path(id): Path<String>,
    NoBody: NoBody,
) -> Result<Json<Subscription>, Problem> {
    switch(&dispatch, &caller, &id, false).await
}

/// Resume a subscription that was paused, or that Tidegate disabled
///
/// What waited for it is sent. Events that came while it was disabled were not kept for it: a replay with `missing` sends
/// them.
#[utoipa::path(post, path = "/v1/subscriptions/{subscription}/resume", tag = "subscriptions", responses(
    (status = 200, body = Subscription), (status = 404, body = Problem)))]
async fn resume(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Path(id): Path<String>,
    NoBody: NoBody,
) -> Result<Json<Subscription>, Problem> {
    switch(&dispatch, &caller, &id, true).await
}

async fn switch(dispatch: &Dispatch, caller: &Caller, id: &str, is_on: bool) -> Result<Json<Subscription>, Problem> {
    caller.require(Scope::DispatchWrite)?;
    let is_disabled = found(dispatch, caller, id).await?.disabled_reason.is_some();
    let row = dispatch.store().switch_subscription(&caller.actor, &caller.tenant, id, is_on).await?;
    let row = row.ok_or_else(|| Problem::not_found("subscription", id))?;
    let shown = show(dispatch, &caller.tenant, row).await;
    if is_on && is_disabled {
        dispatch.tell_of_enabling(&caller.tenant, id).await;
    }
    Ok(Json(shown))
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RotateIn {
    /// The new one, `whsec_…`; made if absent.
    secret: Option<String>,
}

/// Make a new signing secret, and a new key where `v1a` signs
///
/// The old ones still sign for 24 hours beside them, so that receivers can change over.
#[utoipa::path(post, path = "/v1/subscriptions/{subscription}/rotate-secret", tag = "subscriptions", request_body = Option<RotateIn>, responses(
    (status = 200, body = Subscription), (status = 404, body = Problem),
    (status = 409, description = "too many old ones still sign, others keep changing the subscription, or this version cannot read it", body = Problem)))]
async fn rotate_secret(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Path(id): Path<String>,
    OptionalJson(new): OptionalJson<RotateIn>,
) -> Result<Json<Subscription>, Problem> {
    caller.require(Scope::DispatchWrite)?;
    let secret = match &new.secret {
        Some(text) => SigningSecret::parse("secret", text).map_err(Error::from)?,
        None => SigningSecret::generate(),
    };
    let (tenant, catalog) = (&*caller.tenant, dispatch.catalog());
    // What others change meanwhile may change which keys there must be: then it is read again.
    for _ in 0..MOST_TRIES {
        let row = readable(&dispatch, &caller, &id).await?;
        let mut sealed = vec![catalog.seal(tenant, &id, &id::new("sec"), secret.text())];
        if row.settings.signatures == Signatures::Both {
            sealed.push(catalog.seal_new_key(tenant, &id));
        }
        require_room(&catalog.secrets(tenant, &id).await?, sealed.len())?;
        let Some(now) = dispatch.store().rotate(&caller.actor, &row, sealed, OVERLAP).await? else { continue };
        let shown = show(&dispatch, tenant, now).await;
        return Ok(Json(Subscription { secret: Some(secret.text().expose().to_owned()), ..shown }));
    }
    Err(busy())
}

/// Send a test event to this subscription alone
#[utoipa::path(post, path = "/v1/subscriptions/{subscription}/test", tag = "subscriptions", responses(
    (status = 202, body = Event), (status = 404, body = Problem),
    (status = 409, description = "this version cannot read it", body = Problem)))]
async fn test(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Path(id): Path<String>,
    NoBody: NoBody,
) -> Result<(StatusCode, Json<Event>), Problem> {
    caller.require(Scope::DispatchWrite)?;
    let endpoint = compiled(&dispatch, &caller, &id).await?;
    let data =
        RawValue::from_string(r#"{"message":"This is a test event from Tidegate."}"#.to_owned()).expect("it is JSON");
    let event = EventIn {
        id: None,
        event_type: TEST_EVENT.to_owned(),
        data,
        source: None,
        ordering_key: None,
        deliver_at: None,
    };
    let event = dispatch.intake().accept_event(&caller.tenant, event, Some(endpoint)).await?;
    Ok((StatusCode::ACCEPTED, Json(event)))
}

/// Look at a subscription's gate
#[utoipa::path(get, path = "/v1/subscriptions/{subscription}/gate", tag = "subscriptions", responses(
    (status = 200, body = GateView), (status = 404, body = Problem),
    (status = 409, description = "this version cannot read what its limits are", body = Problem)))]
async fn gate(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<GateView>, Problem> {
    caller.require(Scope::DispatchRead)?;
    let endpoint = match dispatch.catalog().endpoint(&caller.tenant, &id) {
        Some(endpoint) => endpoint,
        None => compiled(&dispatch, &caller, &id).await?,
    };
    Ok(Json(gate_of(&dispatch, &endpoint).await))
}

pub(super) async fn gate_of(dispatch: &Dispatch, endpoint: &Endpoint) -> GateView {
    let (gate, key) = (dispatch.gate(), &endpoint.guarded.key);
    let circuit = gate.breaker().view(key).await;
    let rate = gate.limiter().peek(key, &endpoint.guarded.rate, std::num::NonZeroU64::MIN).await;
    GateView {
        circuit: circuit.state.name(),
        failures: circuit.failures,
        retry_after_ms: u64::try_from(circuit.retry_after.as_millis()).unwrap_or(u64::MAX),
        calls: gate.semaphore().held(key).await,
        max_concurrency: endpoint.max_concurrency,
        rate_limit: endpoint.rate_limit,
        rate_remaining: rate.remaining,
        degraded: circuit.degraded || rate.degraded,
    }
}
