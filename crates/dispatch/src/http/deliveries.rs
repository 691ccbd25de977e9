//! `/v1/deliveries`: look, retry, cancel.

use axum::{extract::State, http::StatusCode};
use platform::{
    http::{Json, Page, PageQuery, Path, Query},
    problem::Problem,
};
use serde::Deserialize;
use tenancy::{door::Caller, scope::Scope};
use time::OffsetDateTime;
use utoipa::IntoParams;

use crate::{
    Dispatch,
    delivery::Status,
    model::{Attempt, Delivery},
    store::records::DeliveryFilter,
};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DeliveryQuery {
    status: Option<Status>,
    subscription: Option<String>,
    /// The event's type, exactly.
    #[serde(rename = "type")]
    event_type: Option<String>,
    /// Made at or after this time.
    #[serde(default, with = "time::serde::rfc3339::option")]
    #[param(value_type = Option<String>, format = DateTime)]
    since: Option<OffsetDateTime>,
    /// Made before this time.
    #[serde(default, with = "time::serde::rfc3339::option")]
    #[param(value_type = Option<String>, format = DateTime)]
    until: Option<OffsetDateTime>,
    limit: Option<u32>,
    after: Option<String>,
}

/// List deliveries
#[utoipa::path(get, path = "/v1/deliveries", tag = "deliveries", params(DeliveryQuery), responses((status = 200, body = Page<Delivery>)))]
pub(super) async fn list(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Query(query): Query<DeliveryQuery>,
) -> Result<Json<Page<Delivery>>, Problem> {
    caller.require(Scope::DispatchRead)?;
    let DeliveryQuery { status, subscription, event_type, since, until, limit, after } = query;
    let limit = PageQuery { limit, after: None }.limit()?;
    let filter = DeliveryFilter { status, subscription, event_uid: None, event_type, since, until };
    let rows = dispatch.store().deliveries(&caller.tenant, &filter, after.as_deref(), limit + 1).await?;
    Ok(Json(Page::from_rows(rows, limit, |delivery| &delivery.id)))
}

/// Get a delivery
#[utoipa::path(get, path = "/v1/deliveries/{delivery}", tag = "deliveries", responses(
    (status = 200, body = Delivery), (status = 404, body = Problem)))]
pub(super) async fn get(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Delivery>, Problem> {
    caller.require(Scope::DispatchRead)?;
    found(&dispatch, &caller, &id).await.map(Json)
}

/// List a delivery's attempts
#[utoipa::path(get, path = "/v1/deliveries/{delivery}/attempts", tag = "deliveries", responses(
    (status = 200, body = Page<Attempt>), (status = 404, body = Problem)))]
pub(super) async fn attempts(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Page<Attempt>>, Problem> {
    caller.require(Scope::DispatchRead)?;
    found(&dispatch, &caller, &id).await?;
    let data = dispatch.store().attempts(&caller.tenant, &id).await?;
    Ok(Json(Page { data, next: None }))
}

/// Attempt a delivery once more, now
#[utoipa::path(post, path = "/v1/deliveries/{delivery}/retry", tag = "deliveries", responses(
    (status = 202, body = Delivery), (status = 404, body = Problem),
    (status = 409, description = "it is being attempted right now", body = Problem)))]
pub(super) async fn retry(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<Delivery>), Problem> {
    caller.require(Scope::DispatchWrite)?;
    found(&dispatch, &caller, &id).await?;
    if !dispatch.store().retry(&caller.tenant, &id).await? {
        return Err(Problem::conflict(
            "being_attempted",
            "this delivery is being attempted right now: wait for its outcome",
        ));
    }
    dispatch.wake();
    Ok((StatusCode::ACCEPTED, Json(found(&dispatch, &caller, &id).await?)))
}

/// Cancel a delivery
#[utoipa::path(post, path = "/v1/deliveries/{delivery}/cancel", tag = "deliveries", responses(
    (status = 200, body = Delivery), (status = 404, body = Problem),
    (status = 409, description = "it has ended already", body = Problem)))]
pub(super) async fn cancel(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Delivery>, Problem> {
    caller.require(Scope::DispatchWrite)?;
    found(&dispatch, &caller, &id).await?;
    if !dispatch.store().cancel(&caller.tenant, &id).await? {
        return Err(Problem::conflict("already_ended", "this delivery has ended already: there is nothing to cancel"));
    }
    found(&dispatch, &caller, &id).await.map(Json)
}

async fn found(dispatch: &Dispatch, caller: &Caller, id: &str) -> Result<Delivery, Problem> {
    let delivery = dispatch.store().delivery(&caller.tenant, id).await?;
    delivery.ok_or_else(|| Problem::not_found("delivery", id))
}
