//! `/v1/events`: take events in, look at them.

#[cfg(test)]
mod tests;

use std::{pin::pin, sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::{Bytes, BytesMut};
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use http_body_util::BodyExt;
use platform::{
    crash::crash_point,
    http::{Json, Page, PageQuery, Path, Query, cursor, no_cursor, require_json, require_plain, utc},
    id,
    problem::Problem,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tenancy::{door::Caller, scope::Scope};
use time::OffsetDateTime;
use tokio::sync::Semaphore;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    Dispatch,
    intake::{EventIn, Intake, Memory, Taken, too_large},
    model::{Delivery, Event},
    store::search::{DeliveryFilter, EventFilter, MOST_BYTES},
};

/// Events of one request that are accepted together ..
const CHUNK: usize = 500;
/// .. if they came so soon after the first of them: a body arrives in pieces, and each chunk is a question to the database ..
const GATHER: Duration = Duration::from_millis(2);
/// .. and how many such chunks are on their way at a time.
const CHUNKS: usize = ALL_CHUNKS as usize;
const ALL_CHUNKS: u32 = 4;
/// Of one request that is read whole, where one event may not be larger; NDJSON is read line by line and has no such bound.
const LARGEST_BODY: usize = 8 << 20;
/// What may stand around one event: the brackets of an array, and spaces.
const ENVELOPE: usize = 1 << 10;
/// So much of a line may wait for its end without memory of its own.
const SHORT_LINE: usize = 64 << 10;

pub(super) fn routes() -> OpenApiRouter<Dispatch> {
    let intake =
        OpenApiRouter::new().routes(routes!(create)).routes(routes!(create_short)).layer(DefaultBodyLimit::disable());
    OpenApiRouter::new().merge(intake).routes(routes!(list)).routes(routes!(get)).routes(routes!(deliveries))
}

/// What became of each event of a batch.
#[derive(Serialize, ToSchema)]
struct Batch {
    accepted: usize,
    rejected: usize,
    /// In the order of the events.
    results: Vec<BatchItem>,
}

#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum BatchItem {
    Accepted(ItemAccepted),
    Rejected { error: Problem },
}

#[derive(Serialize, ToSchema)]
struct ItemAccepted {
    id: String,
    status: &'static str,
    /// `database` while Kafka is away.
    #[serde(skip_serializing_if = "Option::is_none")]
    queued_in: Option<&'static str>,
}

/// One event, or an array of them.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only the document has it; a body is read as the bytes that it is")]
enum EventsIn {
    One(EventIn),
    Many(Vec<EventIn>),
}

/// What became of one event, or of many.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only the document has it")]
enum EventsOut {
    One(Event),
    Many(Batch),
}

/// Send events in
///
/// One event, an array, or NDJSON (`content-type: application/x-ndjson`): one event a line. The answer comes after they are on
/// disk. Of many, each is accepted or rejected by itself. Sending an event again under the same `id` is harmless.
#[utoipa::path(post, path = "/v1/events", tag = "events",
    request_body(content((EventsIn = "application/json"), (EventIn = "application/x-ndjson"))), responses(
    (status = 202, description = "durable, and on its way", body = EventsOut),
    (status = 409, description = "another event has this id", body = Problem),
    (status = 415, description = "neither JSON nor NDJSON, or compressed", body = Problem),
    (status = 422, description = "it is wrong, or all of many are", content((Batch = "application/json"), (Problem = "application/problem+json")))))]
async fn create(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    caller.require(Scope::DispatchWrite)?;
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if content_type.is_some_and(is_lines) {
        require_plain(&headers)?;
        // One line after the other is given memory, so a request that is ahead of the database is read no further.
        let lines = lines(body, dispatch.intake(), &caller.tenant, dispatch.config().max_event);
        return many(&dispatch, &caller.tenant, lines.boxed()).await;
    }
    require_json(&headers)?;
    let (body, _held) = read(&dispatch, &caller.tenant, body).await?;
    if is_array(&body) {
        let one_too_many = dispatch.config().max_events + 1;
        let items: Vec<Box<RawValue>> = platform::http::parse_json_array(&body, one_too_many)?;
        // They take the place of the body, and the memory that is held for it.
        drop(body);
        let items = items.into_iter().map(|item| Ok((Bytes::from(String::from(Box::<str>::from(item))), None)));
        return many(&dispatch, &caller.tenant, stream::iter(items).boxed()).await;
    }
    let event = dispatch.intake().accept(&caller.tenant, &body).await?;
    crash_point("ack.before");
    Ok((StatusCode::ACCEPTED, Json(event)).into_response())
}

/// Does a body of this content type hold one event a line?
pub(super) fn is_lines(content_type: &str) -> bool {
    ["application/x-ndjson", "application/ndjson", "application/jsonl"]
        .iter()
        .any(|lines| content_type.get(..lines.len()).is_some_and(|start| start.eq_ignore_ascii_case(lines)))
}

pub(super) fn is_array(body: &[u8]) -> bool {
    body.trim_ascii_start().first() == Some(&b'[')
}

/// Send events in (short path)
///
/// The same as `POST /v1/events`.
#[utoipa::path(post, path = "/events", tag = "events",
    request_body(content((EventsIn = "application/json"), (EventIn = "application/x-ndjson"))), responses((status = 202, body = EventsOut)))]
async fn create_short(
    state: State<Dispatch>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    create(state, caller, headers, body).await
}

/// One of many events, or why it could not be read; with memory of its own, where the request as a whole holds none.
type Item = Result<(Bytes, Option<Memory>), Problem>;

/// Takes events in as they arrive; each succeeds or fails by itself.
async fn many(dispatch: &Dispatch, tenant: &Arc<str>, items: BoxStream<'static, Item>) -> Result<Response, Problem> {
    let most = dispatch.config().max_events;
    let items = items.take(most + 1).enumerate().map(move |(place, item)| {
        if place == most {
            let detail = format!(
                "a request holds at most {most} events (dispatch.max_events): this one and those after it were not read, send them in another"
            );
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_many_events", detail));
        }
        item
    });
    let (intake, tenant, turns) = (dispatch.intake().clone(), Arc::clone(tenant), Arc::new(Semaphore::new(CHUNKS)));
    let accepting = chunks(items.boxed()).map(move |chunk| {
        let (intake, tenant, turns) = (intake.clone(), Arc::clone(&tenant), Arc::clone(&turns));
        let is_ordered = chunk.iter().flatten().any(|(body, _)| may_be_ordered(body));
        async move {
            // Turns are given in the order of the chunks. One with a line to keep has them all: no other may overtake it.
            let _turn = turns.acquire_many(if is_ordered { ALL_CHUNKS } else { 1 }).await;
            accept_chunk(intake, tenant, chunk).await
        }
    });
    conclude(accepting.buffered(CHUNKS).flat_map(stream::iter).collect().await)
}

/// What arrives together, or nearly so. The end of the body ends the last chunk at once.
fn chunks<T: Send + 'static>(items: BoxStream<'static, T>) -> impl stream::Stream<Item = Vec<T>> {
    stream::unfold(items.fuse(), async |mut items| {
        let mut chunk = vec![items.next().await?];
        let mut is_over = pin!(tokio::time::sleep(GATHER));
        while chunk.len() < CHUNK {
            tokio::select! {
                biased;
                item = items.next() => match item {
                    Some(item) => chunk.push(item),
                    None => break,
                },
                () = &mut is_over => break,
            }
        }
        Some((chunk, items))
    })
}

/// May this event have an ordering key? Its name can be written otherwise, but not without an escape.
fn may_be_ordered(event: &[u8]) -> bool {
    [&b"ordering_key"[..], br"\u"].iter().any(|text| memchr::memmem::find(event, text).is_some())
}

/// Accepts what has arrived of a request together. What could not be read keeps its place.
async fn accept_chunk(intake: Intake, tenant: Arc<str>, chunk: Vec<Item>) -> Vec<Result<ItemAccepted, Problem>> {
    let bodies: Vec<Bytes> = chunk.iter().flatten().map(|(body, _)| body.clone()).collect();
    let mut accepted = intake.accept_all(&tenant, &bodies).await.into_iter();
    let answer = |item: Item| {
        let Taken { id, queued_in } = match item {
            Ok(_) => accepted.next().unwrap_or_else(|| Err(unreadable()))?,
            Err(problem) => return Err(problem),
        };
        Ok(ItemAccepted { id, status: "queued", queued_in })
    };
    chunk.into_iter().map(answer).collect()
}

fn conclude(results: Vec<Result<ItemAccepted, Problem>>) -> Result<Response, Problem> {
    crash_point("ack.before");
    let accepted = results.iter().filter(|result| result.is_ok()).count();
    let rejected = results.len() - accepted;
    let unavailable =
        results.iter().find_map(|result| result.as_ref().err().filter(|problem| problem.status().is_server_error()));
    if accepted == 0
        && let Some(problem) = unavailable
    {
        return Err(problem.clone());
    }
    let results = results.into_iter().map(|result| match result {
        Ok(accepted) => BatchItem::Accepted(accepted),
        Err(error) => BatchItem::Rejected { error },
    });
    let status = if accepted > 0 || rejected == 0 { StatusCode::ACCEPTED } else { StatusCode::UNPROCESSABLE_ENTITY };
    Ok((status, Json(Batch { accepted, rejected, results: results.collect() })).into_response())
}

/// Reads a body whole. It is given memory as it comes, so a slow sender holds no more than it has sent, in however small pieces.
pub(super) async fn read(
    dispatch: &Dispatch,
    tenant: &Arc<str>,
    mut body: Body,
) -> Result<(Bytes, Option<Memory>), Problem> {
    let most = largest_body(dispatch.config().max_event);
    let (mut bytes, mut held) = (BytesMut::new(), None);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| unreadable())?;
        let Some(data) = frame.data_ref() else { continue };
        if bytes.len() + data.len() > most {
            return Err(body_too_large(most));
        }
        dispatch.intake().hold_more(tenant, &mut held, bytes.len() + data.len()).await?;
        bytes.extend_from_slice(data);
    }
    Ok((bytes.freeze(), held))
}

fn unreadable() -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "unreadable_body", "the body ended early or could not be read")
}

/// One event of any size that `dispatch.max_event` allows can be sent as JSON.
fn largest_body(max_event: usize) -> usize {
    LARGEST_BODY.max(max_event + ENVELOPE)
}

fn body_too_large(most: usize) -> Problem {
    let detail = format!(
        "a body of JSON has at most {most} bytes: send its events as NDJSON (content-type: application/x-ndjson), of which each line alone is bounded, or in several requests"
    );
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail).field("body")
}

/// A body that is read line by line, one line in memory at a time.
struct Lines {
    body: Body,
    intake: Intake,
    tenant: Arc<str>,
    longest: usize,
    buffer: BytesMut,
    /// So much of it holds no end of a line.
    searched: usize,
    /// For a long line that has not ended yet.
    held: Option<Memory>,
    is_over: bool,
    /// Within a line that was given up, and was told so.
    is_skipping: bool,
}

/// The lines of a body. One that is too long costs itself and no other.
fn lines(body: Body, intake: &Intake, tenant: &Arc<str>, longest: usize) -> impl stream::Stream<Item = Item> + use<> {
    let lines = Lines {
        body,
        intake: intake.clone(),
        tenant: Arc::clone(tenant),
        longest,
        buffer: BytesMut::new(),
        searched: 0,
        held: None,
        is_over: false,
        is_skipping: false,
    };
    stream::unfold(lines, async |mut lines| Some((lines.next().await?, lines)))
}

impl Lines {
    async fn next(&mut self) -> Option<Item> {
        loop {
            let end = memchr::memchr(b'\n', &self.buffer[self.searched..]).map(|end| self.searched + end + 1);
            if let Some(end) = end.or_else(|| self.is_over.then_some(self.buffer.len())) {
                let line = self.buffer.split_to(end).freeze();
                if line.len() > SHORT_LINE {
                    // The room that it needed is its own.
                    self.buffer = BytesMut::from(&self.buffer[..]);
                }
                let mut held = self.held.take();
                self.searched = 0;
                let is_rest = std::mem::take(&mut self.is_skipping);
                // Its end is no part of the event, and is in memory with it.
                let event = line.slice_ref(line.trim_ascii());
                if !is_rest && !event.is_empty() {
                    let has_memory = self.intake.hold_more(&self.tenant, &mut held, line.len()).await;
                    return Some(has_memory.map(|()| (event, held)).map_err(Problem::from));
                }
                if self.is_over && self.buffer.is_empty() {
                    return None;
                }
                continue;
            }
            self.searched = self.buffer.len();
            if self.is_skipping {
                self.give_up();
            } else if self.buffer.len() > self.longest + 1 {
                // One more than an event may have: the end of its line may be two characters, of which one has come.
                self.give_up();
                return Some(Err(too_large(&format!("more than {} bytes", self.longest), self.longest)));
            } else if self.buffer.len() > SHORT_LINE
                && let Err(error) = self.intake.hold_more(&self.tenant, &mut self.held, self.buffer.len()).await
            {
                self.give_up();
                return Some(Err(error.into()));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.buffer.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
                Some(Err(_)) => {
                    (self.body, self.is_over) = (Body::empty(), true);
                    self.give_up();
                    return Some(Err(unreadable()));
                }
                None => self.is_over = true,
            }
        }
    }

    /// What has come of this line is let go, and what is still to come of it.
    fn give_up(&mut self) {
        self.buffer = BytesMut::new();
        (self.searched, self.held, self.is_skipping) = (0, None, true);
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct EventQuery {
    #[serde(rename = "type")]
    event_type: Option<String>,
    /// Accepted at or after this time.
    #[serde(default, deserialize_with = "utc")]
    #[param(value_type = Option<String>, format = DateTime)]
    since: Option<OffsetDateTime>,
    /// Accepted before this time.
    #[serde(default, deserialize_with = "utc")]
    #[param(value_type = Option<String>, format = DateTime)]
    until: Option<OffsetDateTime>,
    limit: Option<u32>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// List events
///
/// A page ends before its `limit` where its events are large: `next` says whether there are more.
#[utoipa::path(get, path = "/v1/events", tag = "events", params(EventQuery), responses((status = 200, body = Page<Event>)))]
async fn list(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Query(query): Query<EventQuery>,
) -> Result<Json<Page<Event>>, Problem> {
    caller.require(Scope::DispatchRead)?;
    let EventQuery { event_type, since, until, limit, after } = query;
    let limit = PageQuery { limit, after: None }.limit()?;
    // An event may also be named by the id that its sender gave it.
    if let Some(after) = after.as_deref().filter(|after| !id::is_made("evt", after)) {
        dispatch.store().uid_of_event(&caller.tenant, after).await?.ok_or_else(no_cursor)?;
    }
    let filter = EventFilter { event_type, since, until };
    let events = dispatch.store().events(&caller.tenant, &filter, after.as_deref(), limit + 1).await?;
    let is_cut = events.iter().map(|event| event.data.get().len()).sum::<usize>() >= MOST_BYTES;
    let page = Page::from_rows(events, limit, |event| &event.uid);
    let next = page.next.or_else(|| page.data.last().filter(|_| is_cut).map(|event| event.uid.clone()));
    Ok(Json(Page { next, ..page }))
}

/// Get an event
#[utoipa::path(get, path = "/v1/events/{event}", tag = "events", responses((status = 200, body = Event), (status = 404, body = Problem)))]
async fn get(State(dispatch): State<Dispatch>, caller: Caller, Path(id): Path<String>) -> Result<Json<Event>, Problem> {
    caller.require(Scope::DispatchRead)?;
    let event = dispatch.store().event(&caller.tenant, &id).await?;
    event.map(Json).ok_or_else(|| Problem::not_found("event", &id))
}

/// List an event's deliveries
#[utoipa::path(get, path = "/v1/events/{event}/deliveries", tag = "events", params(PageQuery), responses(
    (status = 200, body = Page<Delivery>), (status = 404, body = Problem)))]
async fn deliveries(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    Path(id): Path<String>,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<Delivery>>, Problem> {
    caller.require(Scope::DispatchRead)?;
    let (limit, after) = (page.limit()?, cursor(page.after.as_deref(), "dlv")?);
    let event = dispatch.store().event(&caller.tenant, &id).await?.ok_or_else(|| Problem::not_found("event", &id))?;
    let filter = DeliveryFilter { event_uid: Some(event.uid), ..DeliveryFilter::default() };
    let rows = dispatch.store().deliveries(&caller.tenant, &filter, after, limit + 1).await?;
    Ok(Json(Page::from_rows(rows, limit, |delivery| &delivery.id)))
}
