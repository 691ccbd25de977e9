//! `/v1/deliveries`: look, retry, cancel.

use axum::{extract::State, http::StatusCode};
use platform::{
    http::{Json, NoBody, Page, PageQuery, Path, Query, cursor, limit_within, utc},
    problem::Problem,
};
use serde::Deserialize;
use tenancy::{door::Caller, scope::Scope};
use time::OffsetDateTime;
use utoipa::IntoParams;

use crate::{
    Dispatch,
    delivery::{CLASSES, Status},
    metrics as names,
    model::{Attempt, Delivery, FoundAttempt},
    store::search::{DeliveryFilter, MOST_BYTES},
};

/// Pages of deliveries that one request for attempts looks through.
const MOST_PAGES: usize = 20;
/// Attempts of so many deliveries are read at a time, so that a page can end.
const AT_A_TIME: usize = 50;
/// Of one delivery in a page: each may hold 16 KiB of an answer.
const MOST_ATTEMPTS: u32 = 100;

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DeliveryQuery {
    status: Option<Status>,
    subscription: Option<String>,
    /// The event's id.
    event: Option<String>,
    /// The event's type, exactly.
    #[serde(rename = "type")]
    event_type: Option<String>,
    /// Made at or after this time.
    #[serde(default, deserialize_with = "utc")]
    #[param(value_type = Option<String>, format = DateTime)]
    since: Option<OffsetDateTime>,
    /// Made before this time.
    #[serde(default, deserialize_with = "utc")]
    #[param(value_type = Option<String>, format = DateTime)]
    until: Option<OffsetDateTime>,
    limit: Option<u32>,
    after: Option<String>,
}

/// The same for attempts; serde takes no unknown parameters through a flattened struct, so the fields stand here again.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AttemptQuery {
    /// How it ended: `success`, or the class of its error, such as `timeout` or `server_error`.
    class: Option<String>,
    #[param(ignore)]
    status: Option<Status>,
    #[param(ignore)]
    subscription: Option<String>,
    #[param(ignore)]
    event: Option<String>,
    #[serde(rename = "type")]
    #[param(ignore)]
    event_type: Option<String>,
    #[serde(default, deserialize_with = "utc")]
    #[param(ignore)]
    since: Option<OffsetDateTime>,
    #[serde(default, deserialize_with = "utc")]
    #[param(ignore)]
    until: Option<OffsetDateTime>,
    #[param(ignore)]
    limit: Option<u32>,
    #[param(ignore)]
    after: Option<String>,
}

/// A page of one delivery's attempts.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AttemptsQuery {
    /// How many to return, 1 to 100.
    #[param(default = 50, minimum = 1, maximum = 100)]
    limit: Option<u32>,
    /// The `next` of the page before.
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
    search(&dispatch, &caller, query).await.map(Json)
}

/// List attempts
///
/// Every call for the deliveries that are asked for, newest delivery first. `limit` counts deliveries; a page ends before it
/// where the answers are large.
#[utoipa::path(get, path = "/v1/attempts", tag = "deliveries", params(DeliveryQuery, AttemptQuery), responses((status = 200, body = Page<FoundAttempt>)))]
pub(super) async fn all_attempts(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Query(query): Query<AttemptQuery>,
) -> Result<Json<Page<FoundAttempt>>, Problem> {
    caller.require(Scope::DispatchRead)?;
    let AttemptQuery { class, status, subscription, event, event_type, since, until, limit, after } = query;
    let mut query = DeliveryQuery { status, subscription, event, event_type, since, until, limit, after };
    if class.as_deref().is_some_and(|class| !CLASSES.contains(&class)) {
        let detail = format!("class must be one of: {}", CLASSES.join(", "));
        return Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_query", detail).field("class"));
    }
    // A class is rare as a rule: pages without it are passed over, so many at a time.
    let mut pages = MOST_PAGES;
    loop {
        let Page { data: deliveries, mut next } = search(&dispatch, &caller, query.clone()).await?;
        let (mut data, mut bytes) = (Vec::new(), 0);
        let mut pieces = deliveries.chunks(AT_A_TIME).peekable();
        while let Some(piece) = pieces.next() {
            let attempts = dispatch.store().attempts_of(&caller.tenant, piece, class.as_deref()).await?;
            bytes += attempts.iter().map(|found| found.attempt.answer_bytes()).sum::<usize>();
            data.extend(attempts);
            if bytes >= MOST_BYTES && pieces.peek().is_some() {
                next = piece.last().map(|delivery| delivery.id.clone());
                break;
            }
        }
        if !data.is_empty() || next.is_none() || pages == 1 {
            return Ok(Json(Page { data, next }));
        }
        (query.after, pages) = (next, pages - 1);
    }
}

async fn search(dispatch: &Dispatch, caller: &Caller, query: DeliveryQuery) -> Result<Page<Delivery>, Problem> {
    let DeliveryQuery { status, subscription, event, event_type, since, until, limit, after } = query;
    let (limit, after) = (PageQuery { limit, after: None }.limit()?, cursor(after.as_deref(), "dlv")?);
    let event_uid = match event {
        None => None,
        Some(id) => match dispatch.store().uid_of_event(&caller.tenant, &id).await? {
            Some(uid) => Some(uid),
            None => return Ok(Page { data: Vec::new(), next: None }),
        },
    };
    let filter = DeliveryFilter { status, subscription, event_uid, event_type, since, until };
    let rows = dispatch.store().deliveries(&caller.tenant, &filter, after, limit + 1).await?;
    Ok(Page::from_rows(rows, limit, |delivery| &delivery.id))
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
///
/// The last first.
#[utoipa::path(get, path = "/v1/deliveries/{delivery}/attempts", tag = "deliveries", params(AttemptsQuery), responses(
    (status = 200, body = Page<Attempt>), (status = 404, body = Problem)))]
pub(super) async fn attempts(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Path(id): Path<String>,
    Query(AttemptsQuery { limit, after }): Query<AttemptsQuery>,
) -> Result<Json<Page<Attempt>>, Problem> {
    caller.require(Scope::DispatchRead)?;
    let (limit, after) = (limit_within(limit, MOST_ATTEMPTS)?, cursor(after.as_deref(), "att")?);
    found(&dispatch, &caller, &id).await?;
    let rows = dispatch.store().attempts(&caller.tenant, &id, after, limit + 1).await?;
    Ok(Json(Page::from_rows(rows, limit, |attempt| &attempt.id)))
}

/// Attempt a delivery once more, now
#[utoipa::path(post, path = "/v1/deliveries/{delivery}/retry", tag = "deliveries", responses(
    (status = 202, body = Delivery), (status = 404, body = Problem),
    (status = 409, description = "it is being attempted right now, or its subscription or event is gone", body = Problem)))]
pub(super) async fn retry(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Path(id): Path<String>,
    NoBody: NoBody,
) -> Result<(StatusCode, Json<Delivery>), Problem> {
    caller.require(Scope::DispatchWrite)?;
    let Delivery { subscription_id, event_id, .. } = found(&dispatch, &caller, &id).await?;
    if event_id.is_empty() {
        let detail = "its event is older than dispatch.retention and gone: there is nothing to send";
        return Err(Problem::conflict("event_gone", detail));
    }
    if dispatch.store().subscription(&caller.tenant, &subscription_id).await?.is_none() {
        let detail = format!("the subscription {subscription_id:?} was deleted: there is nobody to send it to");
        return Err(Problem::conflict("subscription_gone", detail));
    }
    if !dispatch.store().retry(&caller.tenant, &id).await? {
        return Err(being_attempted());
    }
    dispatch.wake();
    Ok((StatusCode::ACCEPTED, Json(found(&dispatch, &caller, &id).await?)))
}

/// Cancel a delivery
#[utoipa::path(post, path = "/v1/deliveries/{delivery}/cancel", tag = "deliveries", responses(
    (status = 200, body = Delivery), (status = 404, body = Problem),
    (status = 409, description = "it has ended already, or is being attempted right now", body = Problem)))]
pub(super) async fn cancel(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Path(id): Path<String>,
    NoBody: NoBody,
) -> Result<Json<Delivery>, Problem> {
    caller.require(Scope::DispatchWrite)?;
    found(&dispatch, &caller, &id).await?;
    if !dispatch.store().cancel(&caller.tenant, &id).await? {
        if found(&dispatch, &caller, &id).await?.status == Status::Processing {
            return Err(being_attempted());
        }
        return Err(Problem::conflict("already_ended", "this delivery has ended already: there is nothing to cancel"));
    }
    metrics::counter!(names::DELIVERIES, "result" => Status::Cancelled.as_str()).increment(1);
    dispatch.wake();
    found(&dispatch, &caller, &id).await.map(Json)
}

/// Its call may be on the way, so it can be neither sent again nor called off.
fn being_attempted() -> Problem {
    Problem::conflict("being_attempted", "this delivery is being attempted right now: wait for its outcome")
}

async fn found(dispatch: &Dispatch, caller: &Caller, id: &str) -> Result<Delivery, Problem> {
    let delivery = dispatch.store().delivery(&caller.tenant, id).await?;
    delivery.ok_or_else(|| Problem::not_found("delivery", id))
}
