//! `/v1/jobs`: replay, cancel or purge many deliveries in the background; look at the progress, stop it.

use axum::{extract::State, http::StatusCode};
use platform::{
    http::{Json, NoBody, OptionalJson, Page, PageQuery, Path, Query, cursor, utc},
    problem::Problem,
};
use serde::Deserialize;
use tenancy::{door::Caller, scope::Scope};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    Dispatch,
    delivery::Status,
    error::Error,
    job::{Job, Kind, Selection, State as JobState},
    store::jobs::JobRow,
};

pub(super) fn routes() -> OpenApiRouter<Dispatch> {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(get))
        .routes(routes!(cancel))
        .routes(routes!(replay))
}

/// A job as it is asked for.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct JobIn {
    kind: Option<Kind>,
    subscription: Option<String>,
    /// Only these, by their ids, at most 1,000.
    deliveries: Option<Vec<String>>,
    /// Absent: what has failed for a replay, what waits for a cancel, what has ended for a purge.
    status: Option<Vec<Status>>,
    /// Globs over event types.
    #[schema(example = json!(["order.*"]))]
    event_types: Option<Vec<String>>,
    /// Made at or after this time.
    #[serde(default, deserialize_with = "utc")]
    #[schema(value_type = Option<String>, format = DateTime)]
    since: Option<OffsetDateTime>,
    /// Made before this time.
    #[serde(default, deserialize_with = "utc")]
    #[schema(value_type = Option<String>, format = DateTime)]
    until: Option<OffsetDateTime>,
    /// Replay only: also make deliveries of events since `since` that a subscription wants now and has none of.
    #[serde(default)]
    missing: bool,
    /// Count, and change nothing. A purge must say true or false.
    dry_run: Option<bool>,
}

/// Start a job
///
/// It runs in the background; follow it with `GET /v1/jobs/{id}`.
#[utoipa::path(post, path = "/v1/jobs", tag = "jobs", request_body = JobIn, responses(
    (status = 202, body = Job), (status = 404, description = "no such subscription", body = Problem),
    (status = 409, description = "too many jobs wait", body = Problem)))]
async fn create(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Json(new): Json<JobIn>,
) -> Result<(StatusCode, Json<Job>), Problem> {
    caller.require(Scope::DispatchWrite)?;
    let Some(kind) = new.kind else {
        return Err(Problem::invalid("kind", "kind is needed: \"replay\", \"cancel\" or \"purge\""));
    };
    start(&dispatch, &caller, kind, new).await
}

/// Send a subscription's deliveries again
///
/// Without a body: those that have failed. A job of the kind `replay`, in the background.
#[utoipa::path(post, path = "/v1/subscriptions/{subscription}/replay", tag = "jobs", request_body = Option<JobIn>, responses(
    (status = 202, body = Job), (status = 404, body = Problem), (status = 409, description = "too many jobs wait", body = Problem)))]
async fn replay(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Path(subscription): Path<String>,
    OptionalJson(new): OptionalJson<JobIn>,
) -> Result<(StatusCode, Json<Job>), Problem> {
    caller.require(Scope::DispatchWrite)?;
    for (field, is_given) in [("kind", new.kind.is_some()), ("subscription", new.subscription.is_some())] {
        if is_given {
            return Err(Problem::invalid(field, format!("{field} is said by the path: leave it out")));
        }
    }
    start(&dispatch, &caller, Kind::Replay, JobIn { subscription: Some(subscription), ..new }).await
}

async fn start(
    dispatch: &Dispatch,
    caller: &Caller,
    kind: Kind,
    new: JobIn,
) -> Result<(StatusCode, Json<Job>), Problem> {
    let JobIn { subscription, deliveries, status, event_types, since, until, missing, dry_run, .. } = new;
    let selection = Selection { subscription, deliveries, event_types, since, until, missing, ..Selection::default() };
    let selection = selection.check(kind, status, dry_run).map_err(Error::from)?;
    // What is purged may be of a subscription that is gone already.
    if let Some(id) = selection.subscription.as_deref().filter(|_| kind != Kind::Purge)
        && dispatch.store().subscription(&caller.tenant, id).await?.is_none()
    {
        return Err(Problem::not_found("subscription", id).field("subscription"));
    }
    let named = selection.deliveries.as_deref().unwrap_or_default();
    if let Some(place) = dispatch.store().first_unknown(&caller.tenant, named).await? {
        return Err(Problem::not_found("delivery", &named[place]).field(format!("deliveries[{place}]")));
    }
    let made = dispatch.store().create_job(&caller.actor, &caller.tenant, kind, &selection).await?;
    let row = made.ok_or_else(|| {
        Problem::conflict("too_many_jobs", "a hundred jobs have not ended yet: wait for them, or cancel some")
    })?;
    dispatch.wake_jobs();
    Ok((StatusCode::ACCEPTED, Json(shown(row))))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct JobQuery {
    kind: Option<Kind>,
    limit: Option<u32>,
    after: Option<String>,
}

/// List jobs
#[utoipa::path(get, path = "/v1/jobs", tag = "jobs", params(JobQuery), responses((status = 200, body = Page<Job>)))]
async fn list(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Query(query): Query<JobQuery>,
) -> Result<Json<Page<Job>>, Problem> {
    caller.require(Scope::DispatchRead)?;
    let JobQuery { kind, limit, after } = query;
    let (limit, after) = (PageQuery { limit, after: None }.limit()?, cursor(after.as_deref(), "job")?);
    let rows = dispatch.store().jobs(&caller.tenant, kind, after, limit + 1).await?;
    Ok(Json(Page::from_rows(rows.into_iter().map(shown).collect(), limit, |job: &Job| &job.id)))
}

/// Get a job
#[utoipa::path(get, path = "/v1/jobs/{job}", tag = "jobs", responses((status = 200, body = Job), (status = 404, body = Problem)))]
async fn get(State(dispatch): State<Dispatch>, caller: Caller, Path(id): Path<String>) -> Result<Json<Job>, Problem> {
    caller.require(Scope::DispatchRead)?;
    found(&dispatch, &caller, &id).await.map(|row| Json(shown(row)))
}

/// Cancel a job
///
/// What it has done stays done; nothing more is, after the batch that is being written.
#[utoipa::path(post, path = "/v1/jobs/{job}/cancel", tag = "jobs", responses(
    (status = 200, body = Job), (status = 404, body = Problem), (status = 409, description = "it has ended already", body = Problem)))]
async fn cancel(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Path(id): Path<String>,
    NoBody: NoBody,
) -> Result<Json<Job>, Problem> {
    caller.require(Scope::DispatchWrite)?;
    found(&dispatch, &caller, &id).await?;
    let cancelled = dispatch.store().cancel_job(&caller.tenant, &id).await?;
    let ended = || Problem::conflict("already_ended", "this job has ended already: there is nothing to cancel");
    Ok(Json(shown(cancelled.ok_or_else(ended)?)))
}

async fn found(dispatch: &Dispatch, caller: &Caller, id: &str) -> Result<JobRow, Problem> {
    dispatch.store().job(&caller.tenant, id).await?.ok_or_else(|| Problem::not_found("job", id))
}

fn shown(row: JobRow) -> Job {
    let end = row.selection.until.map_or(row.created_at, |until| until.min(row.created_at));
    let share = row.progress.share(row.selection.walks(row.kind).len(), end);
    Job {
        id: row.id,
        kind: row.kind,
        state: row.state,
        selection: row.selection,
        counts: row.progress.counts,
        progress: if row.state == JobState::Done { 1.0 } else { share },
        error: row.error,
        created_at: row.created_at,
        started_at: row.started_at,
        finished_at: row.finished_at,
    }
}
