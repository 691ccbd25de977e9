//! `/v1/rejected`: records of the topic that could not become events, with their bytes.
//!
//! A key sees its tenant's. Only the admin key sees those whose tenant could not be told, and everyone's with `all=true`.
//! One that is retried goes the way of an event that is sent in, into the database and by the subscriptions of now: any replica
//! can do it, whether it reads from Kafka or not.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode};
use base64::{Engine, prelude::BASE64_STANDARD};
use platform::{
    http::{Json, NoBody, Page, PageQuery, Path, Query, cursor},
    problem::Problem,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tenancy::{door::Caller, scope::Scope};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};

#[cfg(feature = "kafka")]
use crate::kafka::record::{Decoded, Incoming, Rejection};
use crate::{Dispatch, intake::EventIn, model::Event, store::rejected::Rejected};

/// A record that could not become an event.
#[derive(Serialize, ToSchema)]
pub(super) struct RejectedRecord {
    #[schema(example = "rej_01k9x7m2e8f3s9w4d6b1c5a7g0")]
    id: String,
    /// As far as it could be told.
    tenant: Option<String>,
    topic: String,
    partition: i64,
    offset: i64,
    /// A bounded word, for programs: `unreadable`, `unknown_version`, `bad_tenant`, `bad_header`, `event_too_large`,
    /// `invalid_event`, `id_conflict`, `unstorable`.
    #[schema(example = "unreadable")]
    reason: String,
    /// One sentence, for people.
    detail: String,
    /// Bytes of its value.
    size: i64,
    /// Names and values, as text.
    #[schema(value_type = Vec<Object>)]
    headers: Box<RawValue>,
    /// When Kafka took it.
    #[serde(with = "platform::moment")]
    #[schema(value_type = String, format = DateTime)]
    record_at: OffsetDateTime,
    /// When it was read.
    #[serde(with = "platform::moment")]
    #[schema(value_type = String, format = DateTime)]
    created_at: OffsetDateTime,
    /// Its key in base64; only when one record is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    /// Its value in base64; only when one record is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
}

impl From<Rejected> for RejectedRecord {
    fn from(record: Rejected) -> Self {
        let Rejected { id, tenant, topic, partition, offset, at, size, headers, reason, detail, created_at } = record;
        RejectedRecord {
            id,
            tenant,
            topic,
            partition,
            offset,
            reason,
            detail,
            size,
            headers,
            record_at: at,
            created_at,
            key_base64: None,
            value_base64: None,
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RejectedQuery {
    /// Only those with this reason.
    reason: Option<String>,
    /// Everyone's, and those of nobody; for the admin key.
    #[serde(default)]
    all: bool,
    limit: Option<u32>,
    after: Option<String>,
}

/// List rejected records
#[utoipa::path(get, path = "/v1/rejected", tag = "rejected", params(RejectedQuery), responses((status = 200, body = Page<RejectedRecord>)))]
pub(super) async fn list(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Query(query): Query<RejectedQuery>,
) -> Result<Json<Page<RejectedRecord>>, Problem> {
    caller.require(Scope::DispatchRead)?;
    let RejectedQuery { reason, all, limit, after } = query;
    if all {
        caller.require_admin()?;
    }
    let (limit, after) = (PageQuery { limit, after: None }.limit()?, cursor(after.as_deref(), "rej")?);
    let tenant = (!all).then_some(&*caller.tenant);
    let rows = dispatch.store().rejected(tenant, reason.as_deref(), after, limit + 1).await?;
    let records = rows.into_iter().map(RejectedRecord::from).collect();
    Ok(Json(Page::from_rows(records, limit, |record| &record.id)))
}

/// Get a rejected record with its bytes
#[utoipa::path(get, path = "/v1/rejected/{record}", tag = "rejected", responses(
    (status = 200, body = RejectedRecord), (status = 404, body = Problem)))]
pub(super) async fn get(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<RejectedRecord>, Problem> {
    caller.require(Scope::DispatchRead)?;
    let found = dispatch.store().rejected_record(visible(&caller), &id).await?;
    let (record, key, value) = found.ok_or_else(|| Problem::not_found("rejected record", &id))?;
    let key_base64 = key.map(|key| BASE64_STANDARD.encode(key));
    let value_base64 = Some(BASE64_STANDARD.encode(value));
    Ok(Json(RejectedRecord { key_base64, value_base64, ..record.into() }))
}

/// Delete a rejected record
///
/// When it was seen to, or sent again as it should be.
#[utoipa::path(delete, path = "/v1/rejected/{record}", tag = "rejected", responses(
    (status = 204), (status = 404, body = Problem)))]
pub(super) async fn delete(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    caller.require(Scope::DispatchWrite)?;
    if dispatch.store().delete_rejected(visible(&caller), &id).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(Problem::not_found("rejected record", &id))
}

/// Retry a rejected record
///
/// Once what was wrong with it is mended: its tenant was made, `dispatch.max_event` raised, Tidegate upgraded. It is read as a
/// worker reads it, taken in as an event of now for the subscriptions of now, and deleted. Retrying it again is harmless, whatever
/// died meanwhile. What still cannot become an event stays as it is.
#[utoipa::path(post, path = "/v1/rejected/{record}/retry", tag = "rejected", responses(
    (status = 202, description = "the event is durable and on its way, and the record is gone", body = Event),
    (status = 404, body = Problem),
    (status = 409, description = "another event has its id, or this binary was built without Kafka", body = Problem),
    (status = 422, description = "it still cannot become an event; the code is the reason", body = Problem)))]
pub(super) async fn retry(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Path(id): Path<String>,
    NoBody: NoBody,
) -> Result<(StatusCode, Json<Event>), Problem> {
    caller.require(Scope::DispatchWrite)?;
    let (store, intake) = (dispatch.store(), dispatch.intake());
    let not_found = || Problem::not_found("rejected record", &id);
    let found = store.rejected_record(visible(&caller), &id).await?;
    let (record, key, value) = found.ok_or_else(not_found)?;
    let (tenant, event) = read(&record, key, value, dispatch.config().max_event)?;
    if !caller.can_see(&tenant) {
        return Err(not_found());
    }
    if !store.has_tenant(&tenant).await? {
        let detail = format!("there is no tenant {tenant:?}, which the record names: make it, then retry");
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_tenant", detail));
    }
    let _held = intake.hold(&tenant, event.data.get().len()).await?;
    // The subscription that it is retried for may just have been made on another replica.
    dispatch.catalog().refresh().await?;
    let event = intake.accept_event(&tenant, event, None).await.map_err(why_not)?;
    // The event first: if this process dies in between, the record is still there and its event is known.
    store.delete_rejected(visible(&caller), &id).await?;
    tracing::info!(
        record = %id, %tenant, event = %event.id, actor = %caller.actor,
        "A rejected record was retried and is an event."
    );
    Ok((StatusCode::ACCEPTED, Json(event)))
}

/// Whose a kept record is, and its event, as a worker reads them from the topic.
#[cfg(feature = "kafka")]
fn read(
    record: &Rejected,
    key: Option<Vec<u8>>,
    value: Vec<u8>,
    max_event: usize,
) -> Result<(Arc<str>, EventIn), Problem> {
    let decoded = Incoming::kept(record, key, value).and_then(|incoming| incoming.decode(max_event));
    let Decoded { tenant, event } = decoded.map_err(|Rejection { reason, detail }| refused(reason, &detail))?;
    Ok((tenant, event))
}

#[cfg(not(feature = "kafka"))]
fn read(_: &Rejected, _: Option<Vec<u8>>, _: Vec<u8>, _: usize) -> Result<(Arc<str>, EventIn), Problem> {
    let detail = "this binary was built without Kafka and cannot read its records: ask a replica whose binary can";
    Err(Problem::conflict("no_kafka", detail))
}

/// Why an event that could be read was not taken in. Of what may pass by itself, such as a database that is away, no more is
/// said than anywhere.
fn why_not(problem: Problem) -> Problem {
    match problem.status() {
        StatusCode::CONFLICT => {
            let detail = "another event has its id: send it under an id of its own, then delete this record";
            Problem::conflict("id_conflict", detail)
        }
        StatusCode::INTERNAL_SERVER_ERROR => {
            refused("unstorable", "the database does not take it, and the log has the cause")
        }
        status if status.is_client_error() => {
            let detail = problem.detail();
            let named = problem.wrong_field().map(|field| format!("{field}: {detail}"));
            refused("invalid_event", named.as_deref().unwrap_or(detail))
        }
        _ => problem,
    }
}

/// It still cannot become an event, for this one of the reasons that records are rejected for.
fn refused(reason: &'static str, detail: &str) -> Problem {
    let fix = match reason {
        "event_too_large" => "raise it for the replica that is asked, then retry",
        "unknown_version" => "ask a replica of a newer version, or upgrade, then retry",
        "unstorable" => "mend that or upgrade, then retry",
        _ => "send the event as it should be, then delete this record",
    };
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, reason, format!("{detail}: {fix}"))
}

/// The admin key may look at any record by its id.
fn visible(caller: &Caller) -> Option<&str> {
    caller.require_admin().is_err().then_some(&*caller.tenant)
}
