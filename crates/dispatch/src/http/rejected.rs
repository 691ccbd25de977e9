//! `/v1/rejected`: records of the topic that could not become events, with their bytes.
//!
//! A key sees its tenant's. Only the admin key sees those whose tenant could not be told, and everyone's with `all=true`.

use axum::{extract::State, http::StatusCode};
use base64::{Engine, prelude::BASE64_STANDARD};
use platform::{
    http::{Json, Page, PageQuery, Path, Query},
    problem::Problem,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tenancy::{door::Caller, scope::Scope};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};

use crate::{Dispatch, store::rejected::Rejected};

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
    #[serde(with = "time::serde::rfc3339")]
    #[schema(value_type = String, format = DateTime)]
    record_at: OffsetDateTime,
    /// When it was read.
    #[serde(with = "time::serde::rfc3339")]
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
    let limit = PageQuery { limit, after: None }.limit()?;
    let tenant = (!all).then_some(&*caller.tenant);
    let rows = dispatch.store().rejected(tenant, reason.as_deref(), after.as_deref(), limit + 1).await?;
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

/// The admin key may look at any record by its id.
fn visible(caller: &Caller) -> Option<&str> {
    caller.require_admin().is_err().then_some(&*caller.tenant)
}
