//! `/v1/limits/rules`: a tenant's own rules. Every rule has an ETag, so that two writers notice each other.

use axum::{
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use platform::{
    http::{Json, Page, PageQuery, Path, Query, cursor_of_chosen},
    id,
    problem::Problem,
};
use serde::Serialize;
use tenancy::{door::Caller, scope::Scope};
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::precondition::{self, Precondition};
use crate::{
    Limits,
    error::Error,
    rule::{Algorithm, Pattern, Source, Written},
    store::{MOST_BYTES, MOST_RULES, RuleRow},
};

/// Patterns that may have to be tried on one key, beside those that are a beginning and a star. Writers at the same moment
/// may go beyond it by as many.
const MOST_TRIED: usize = 200;

/// A rule as it is kept.
#[derive(Serialize, ToSchema)]
pub(super) struct RuleOut {
    #[serde(flatten)]
    written: Written,
    #[serde(with = "platform::moment")]
    #[schema(value_type = String)]
    created_at: OffsetDateTime,
    #[serde(with = "platform::moment")]
    #[schema(value_type = String)]
    updated_at: OffsetDateTime,
}

impl From<RuleRow> for RuleOut {
    fn from(row: RuleRow) -> Self {
        let written = Written { id: Some(row.id), ..row.written };
        RuleOut { written, created_at: row.created_at, updated_at: row.updated_at }
    }
}

/// Make a rule
#[utoipa::path(post, path = "/v1/limits/rules", tag = "limits", request_body = Written, responses(
    (status = 201, body = RuleOut), (status = 409, description = "the id is taken, or there are too many", body = Problem),
    (status = 412, description = "`If-Match`: what is made new has no version", body = Problem), (status = 422, body = Problem)))]
pub(super) async fn create(
    State(limits): State<Limits>,
    caller: Caller,
    headers: HeaderMap,
    Json(mut written): Json<Written>,
) -> Result<Response, Problem> {
    caller.require(Scope::LimitsWrite)?;
    if Precondition::read(&headers)?.needs_a_match() {
        return Err(failed("what is made new has no version to match: leave If-Match out, or PUT the rule"));
    }
    let id = match written.id.take() {
        Some(id) => id::check(&id).map_err(|problem| Problem::invalid("id", problem))?.to_owned(),
        None => id::new("rul"),
    };
    let pattern = check(&mut written)?;
    check_tried(&limits, &caller, &id, &pattern)?;
    let Some(row) = limits.store().create_rule(&caller.actor, &caller.tenant, &id, &written).await? else {
        check_room(&limits, &caller, &id, &written).await?;
        let detail = format!("there is a rule {id:?}: choose another id, or PUT it");
        return Err(Problem::conflict("rule_exists", detail).field("id"));
    };
    limits.keeper().refresh().await?;
    Ok((StatusCode::CREATED, show(row)).into_response())
}

/// List rules
#[utoipa::path(get, path = "/v1/limits/rules", tag = "limits", params(PageQuery), responses((status = 200, body = Page<RuleOut>)))]
pub(super) async fn list(
    State(limits): State<Limits>,
    caller: Caller,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<RuleOut>>, Problem> {
    caller.require(Scope::LimitsRead)?;
    let (limit, after) = (page.limit()?, cursor_of_chosen(page.after.as_deref())?);
    let rows = limits.store().rules(&caller.tenant, after, limit + 1).await?;
    let Page { data, next } = Page::from_rows(rows, limit, |row| &row.id);
    Ok(Json(Page { data: data.into_iter().map(RuleOut::from).collect(), next }))
}

/// Get a rule
#[utoipa::path(get, path = "/v1/limits/rules/{rule}", tag = "limits", responses(
    (status = 200, body = RuleOut), (status = 304, description = "it is as `If-None-Match` says"), (status = 404, body = Problem)))]
pub(super) async fn get(
    State(limits): State<Limits>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    caller.require(Scope::LimitsRead)?;
    let row = found(&limits, &caller, &id).await?;
    if precondition::is_known(&headers, row.version) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, etag(row.version))]).into_response());
    }
    Ok(show(row).into_response())
}

/// Make or replace a rule
///
/// `If-Match` replaces only the version you saw; `If-None-Match: *` only makes, never replaces.
#[utoipa::path(put, path = "/v1/limits/rules/{rule}", tag = "limits", request_body = Written,
    params(("If-Match" = Option<String>, Header), ("If-None-Match" = Option<String>, Header)), responses(
    (status = 200, body = RuleOut), (status = 201, body = RuleOut), (status = 409, description = "there are too many", body = Problem), (status = 412, description = "somebody changed it meanwhile", body = Problem), (status = 422, body = Problem)))]
pub(super) async fn put(
    State(limits): State<Limits>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    Json(mut written): Json<Written>,
) -> Result<Response, Problem> {
    caller.require(Scope::LimitsWrite)?;
    id::check(&id).map_err(|problem| Problem::invalid("id", problem))?;
    if written.id.take().is_some_and(|own| own != id) {
        return Err(Problem::invalid("id", format!("the path says {id:?}: leave the id out, or say the same")));
    }
    let pattern = check(&mut written)?;
    check_tried(&limits, &caller, &id, &pattern)?;
    let (actor, tenant, precondition) = (&*caller.actor, &*caller.tenant, Precondition::read(&headers)?);
    let seen = match precondition.is_some() {
        true => limits.store().rule(tenant, &id).await?.map(|row| row.version),
        false => None,
    };
    if !precondition.holds(seen) {
        return Err(stale(&id));
    }
    let replaced = match precondition.is_some() && seen.is_none() {
        true => None,
        false => limits.store().replace_rule(actor, tenant, &id, &written, seen).await?,
    };
    let (status, row) = match replaced {
        Some(row) => (StatusCode::OK, Some(row)),
        None if seen.is_some() => (StatusCode::OK, None),
        None => (StatusCode::CREATED, limits.store().create_rule(actor, tenant, &id, &written).await?),
    };
    let Some(row) = row else {
        check_room(&limits, &caller, &id, &written).await?;
        return Err(stale(&id));
    };
    limits.keeper().refresh().await?;
    Ok((status, show(row)).into_response())
}

/// Delete a rule
#[utoipa::path(delete, path = "/v1/limits/rules/{rule}", tag = "limits",
    params(("If-Match" = Option<String>, Header), ("If-None-Match" = Option<String>, Header)), responses(
    (status = 204), (status = 404, body = Problem), (status = 412, description = "somebody changed it meanwhile", body = Problem)))]
pub(super) async fn delete(
    State(limits): State<Limits>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    caller.require(Scope::LimitsWrite)?;
    let precondition = Precondition::read(&headers)?;
    let seen = match precondition.is_some() {
        true => Some(found(&limits, &caller, &id).await?.version),
        false => None,
    };
    if !precondition.holds(seen) {
        return Err(stale(&id));
    }
    if !limits.store().delete_rule(&caller.actor, &caller.tenant, &id, seen).await? {
        return Err(if seen.is_some() { stale(&id) } else { Problem::not_found("rule", &id) });
    }
    limits.keeper().refresh().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Checks it, and says what it leaves unsaid.
fn check(written: &mut Written) -> Result<Pattern, Problem> {
    let rule = written.check("".into(), Source::Api).map_err(Error::from)?;
    let counts_by = if written.calendar.is_some() { Algorithm::FixedWindow } else { Algorithm::default() };
    written.algorithm.get_or_insert(counts_by);
    Ok(rule.pattern)
}

fn check_tried(limits: &Limits, caller: &Caller, id: &str, pattern: &Pattern) -> Result<(), Problem> {
    let tried = limits.keeper().tried_with(&caller.tenant, id, pattern);
    if tried <= MOST_TRIED {
        return Ok(());
    }
    let detail = format!(
        "one key may have to be compared with {tried} patterns, and {MOST_TRIED} is the most: \
        write more before the first star, or leave out what follows it"
    );
    Err(Problem::conflict("too_many_patterns", detail).field("key"))
}

async fn check_room(limits: &Limits, caller: &Caller, id: &str, written: &Written) -> Result<(), Problem> {
    if limits.store().has_room(&caller.tenant, id, written).await? {
        return Ok(());
    }
    let detail = format!(
        "a tenant may have {MOST_RULES} rules, of {} MiB as JSON together with their overrides: \
        delete some, or use patterns for groups of keys",
        MOST_BYTES >> 20
    );
    Err(Problem::conflict("too_many_rules", detail))
}

async fn found(limits: &Limits, caller: &Caller, id: &str) -> Result<RuleRow, Problem> {
    limits.store().rule(&caller.tenant, id).await?.ok_or_else(|| Problem::not_found("rule", id))
}

/// There is no such rule though one must be, or there is one though none may be, or it is at another version.
fn stale(id: &str) -> Problem {
    failed(format!("the rule {id:?} is not as you say: get it, look, and try again with its ETag"))
}

fn failed(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::PRECONDITION_FAILED, "precondition_failed", detail.into())
}

fn etag(version: i64) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{version}\"")).unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}

fn show(row: RuleRow) -> impl IntoResponse {
    ([(header::ETAG, etag(row.version))], Json(RuleOut::from(row)))
}
