//! Intake: reads an event, finds who wants it, makes it durable, then says so.
//!
//! Payloads stay as the bytes they came in: they are checked to be JSON, never built into a tree unless a filter asks.
//! "Accepted" is said after the commit. A delivery that this process can make at once is born leased to it.

mod memory;
#[cfg(test)]
pub(crate) mod tests;
mod topic;

use std::{sync::Arc, time::Duration};

use aws_lc_rs::digest;
use axum::http::StatusCode;
use bytes::Bytes;
use platform::{
    crash::crash_point,
    http::{parse_json, utc},
    id,
    problem::Problem,
    shutdown::Tasks,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use time::OffsetDateTime;
use tokio::time::Instant;
use utoipa::ToSchema;

pub use self::memory::Memory;
use self::{memory::Pool, topic::Topic};
use crate::{
    announce::Workers,
    batch::Batcher,
    catalog::{Catalog, Endpoint},
    config::Config,
    delivery::{Document, EventType, MessageId},
    error::Error,
    kafka::Producer,
    metrics as names,
    model::{Event, Ordering},
    operational,
    store::{Accepted, Claimed, InFlight, Lease, NewDelivery, NewEvent, Store},
};

const LONGEST_TEXT: usize = 256;
/// Arrays and objects within each other. Usual parsers, our filters' too, read 127 levels, and our answers and webhooks add
/// some of their own: what nests deeper could be kept and sent, but hardly be read.
const DEEPEST: usize = 120;
/// How far ahead `deliver_at` may be. What waits is kept however old it gets, and its day with it.
const FURTHEST_DAYS: i64 = 366;
/// Who sends many at once is held to the pace of deliveries, if that costs no more than this for each part of a request: what this
/// process does not take into its own hands is read from the database again.
const PACE: Duration = Duration::from_millis(250);

/// An event as it is sent in.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EventIn {
    /// Yours, to make a repeat harmless; or made here. Sent as `webhook-id`. Visible ASCII characters but `.`.
    #[schema(example = "order-1234-created", min_length = 1, max_length = 128)]
    pub id: Option<String>,
    /// Words of letters, digits, `_` and `-`, with single dots between them.
    #[serde(rename = "type")]
    #[schema(example = "order.created", min_length = 1, max_length = 128)]
    pub event_type: String,
    /// Any JSON.
    #[schema(value_type = Value)]
    pub data: Box<RawValue>,
    /// 1 to 256 bytes.
    pub source: Option<String>,
    /// Deliveries with the same key keep their order, where the subscription asks for it. 1 to 256 bytes.
    pub ordering_key: Option<String>,
    /// Not before this time, at most 366 days ahead.
    #[serde(default, deserialize_with = "utc")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deliver_at: Option<OffsetDateTime>,
}

/// One of many events, durable.
#[derive(Debug)]
pub struct Taken {
    pub id: String,
    /// `database` while Kafka is away.
    pub queued_in: Option<&'static str>,
}

impl From<Event> for Taken {
    fn from(Event { id, queued_in, .. }: Event) -> Self {
        Taken { id, queued_in }
    }
}

/// Takes events in. Cheap to clone.
#[derive(Clone)]
pub struct Intake {
    catalog: Catalog,
    workers: Workers,
    batcher: Batcher<NewEvent, Accepted>,
    max_event: usize,
    memory: Pool,
    /// Events go there first, where there is one.
    topic: Option<Topic>,
}

impl Intake {
    pub(crate) fn start(
        store: Store,
        catalog: Catalog,
        workers: Workers,
        lease: Lease,
        config: &Config,
        producer: Option<Producer>,
        tasks: &Tasks,
    ) -> Self {
        let topic = producer.map(|producer| Topic::new(producer, store.clone(), tasks));
        let for_writes = workers.clone();
        let write = move |events: Vec<_>| take_in(store.clone(), lease.clone(), for_writes.clone(), events.into());
        let batcher = Batcher::start(tasks, "intake", 2, Duration::ZERO, write);
        let memory = Pool::new();
        Intake { catalog, workers, batcher, max_event: config.max_event, memory, topic }
    }

    /// Sets memory aside for so many bytes of a request.
    pub async fn hold(&self, tenant: &Arc<str>, bytes: usize) -> Result<Memory, Error> {
        self.memory.hold(tenant, bytes).await
    }

    /// The same for what grows: more is set aside only where that which is held does not suffice.
    pub async fn hold_more(&self, tenant: &Arc<str>, held: &mut Option<Memory>, bytes: usize) -> Result<(), Error> {
        let enough = held.as_ref().map_or(0, Memory::bytes);
        if bytes > enough {
            let more = self.memory.hold(tenant, bytes - enough).await?;
            match held {
                Some(held) => held.merge(more),
                None => *held = Some(more),
            }
        }
        Ok(())
    }

    /// Reads one event, makes it durable, and answers what the caller should know of it.
    pub async fn accept(&self, tenant: &Arc<str>, body: &[u8]) -> Result<Event, Problem> {
        match &self.topic {
            Some(topic) => self.accept_into(topic, tenant, self.read_good(body)?, body.trim_ascii()).await,
            None => self.accept_event(tenant, self.read(body)?, None).await,
        }
    }

    /// Reads many, makes those that are good durable together, and answers for each, in their order.
    pub async fn accept_all(&self, tenant: &Arc<str>, bodies: &[Bytes]) -> Vec<Result<Taken, Problem>> {
        if let Some(topic) = &self.topic {
            let answers = self.accept_all_into(topic, tenant, bodies).await;
            return answers.into_iter().map(|answer| answer.map(Taken::from)).collect();
        }
        self.workers.wait_for_room(bodies.len(), PACE).await;
        let mut good = Vec::with_capacity(bodies.len());
        let read = bodies.iter().map(|body| {
            let new = self.prepare(tenant, self.read(body)?, None)?;
            let id = new.id.clone();
            good.push(new);
            Ok(Taken { id, queued_in: None })
        });
        let read: Vec<Result<Taken, Problem>> = read.collect();
        match self.batcher.write_all(good).await {
            Ok(accepted) => {
                let mut accepted = accepted.into_iter();
                let answers = read.into_iter().map(|taken| {
                    let taken = taken?;
                    count(accepted.next().ok_or(Error::Closed)?, taken)
                });
                answers.collect()
            }
            Err(error) => {
                let unavailable = Problem::from(error);
                read.into_iter().map(|taken| taken.and(Err(unavailable.clone()))).collect()
            }
        }
    }

    fn read(&self, body: &[u8]) -> Result<EventIn, Problem> {
        if body.len() > self.max_event {
            return Err(too_large(&format!("{} bytes", body.len()), self.max_event));
        }
        let event: EventIn = parse_json(body)?;
        check_ahead(&event, OffsetDateTime::now_utc())?;
        Ok(event)
    }

    /// For an event that goes on without [`Intake::prepare`].
    fn read_good(&self, body: &[u8]) -> Result<EventIn, Problem> {
        let event = self.read(body)?;
        check(&event)?;
        Ok(event)
    }

    /// For an event that is only asked about, which may be one of Tidegate's own.
    pub(crate) fn read_to_explain(&self, body: &[u8]) -> Result<(EventIn, EventType), Problem> {
        let event = self.read(body)?;
        let event_type = check_parts(&event)?;
        Ok((event, event_type))
    }

    /// The same for an event that is read already; `only` names the one subscription it is for, whatever its globs say.
    pub async fn accept_event(
        &self,
        tenant: &Arc<str>,
        event: EventIn,
        only: Option<Arc<Endpoint>>,
    ) -> Result<Event, Problem> {
        let data = event.data.clone();
        let new = self.prepare(tenant, event, only)?;
        let (source, ordering_key, deliver_at) = (new.source.clone(), new.ordering_key.clone(), new.deliver_at);
        let (id, event_type, uid) = (Some(new.id.clone()), new.event_type.clone(), new.uid.clone());
        let accepted = self.batcher.write(new).await?;
        answer(accepted, EventIn { id, event_type, data, source, ordering_key, deliver_at }, Some(uid))
    }

    /// Checks an event and finds who wants it.
    pub(crate) fn prepare(
        &self,
        tenant: &Arc<str>,
        event: EventIn,
        only: Option<Arc<Endpoint>>,
    ) -> Result<NewEvent, Problem> {
        let event_type = check(&event)?;
        let hash = hash(&event);
        let EventIn { id, data, source, ordering_key, deliver_at, .. } = event;
        let uid = id::new("evt");
        let id = id.unwrap_or_else(|| uid.clone());
        let endpoints: Vec<Arc<Endpoint>> = match only {
            Some(endpoint) => vec![endpoint],
            None => {
                let document = Document::new(&id, event_type.as_str(), data.get())
                    .with_source(source.as_deref())
                    .with_ordering_key(ordering_key.as_deref());
                self.catalog.wanted(tenant, &event_type, &document)
            }
        };
        let deliveries = endpoints.iter().map(|endpoint| {
            let ordering_key = ordering_key.clone().filter(|_| endpoint.ordering == Ordering::Key);
            let is_now = deliver_at.is_none() && ordering_key.is_none() && endpoint.reach.is_some();
            let place = if is_now { self.workers.promise(tenant) } else { None };
            NewDelivery { id: id::new("dlv"), subscription: Arc::clone(&endpoint.id), ordering_key, place }
        });
        let deliveries = deliveries.collect();
        let data = Bytes::from(String::from(Box::<str>::from(data)));
        let event_type = event_type.as_str().to_owned();
        let tenant = Arc::clone(tenant);
        Ok(NewEvent {
            uid,
            tenant,
            id,
            event_type,
            source,
            ordering_key,
            deliver_at,
            data,
            hash,
            created_at: None,
            trace: platform::telemetry::traceparent().map(Arc::from),
            deliveries,
        })
    }
}

/// What the caller is told of one of many.
fn count(accepted: Accepted, taken: Taken) -> Result<Taken, Problem> {
    metrics::counter!(names::EVENTS, "result" => result(accepted)).increment(1);
    if accepted == Accepted::Conflict { Err(conflict(&taken.id)) } else { Ok(taken) }
}

fn conflict(id: &str) -> Problem {
    let detail = format!("another event has the id {id:?}: send the same event again, or a new one under a new id");
    Problem::conflict("event_conflict", detail).field("id")
}

/// What the caller is told.
fn answer(accepted: Accepted, event: EventIn, uid: Option<String>) -> Result<Event, Problem> {
    metrics::counter!(names::EVENTS, "result" => result(accepted)).increment(1);
    let EventIn { id, event_type, data, source, ordering_key, deliver_at } = event;
    let id = id.unwrap_or_default();
    match accepted {
        Accepted::New { at } | Accepted::Repeat { at } => Ok(Event {
            uid: uid.unwrap_or_default(),
            id,
            event_type,
            data,
            source,
            ordering_key,
            deliver_at,
            status: "queued",
            queued_in: None,
            created_at: at,
        }),
        Accepted::Conflict => Err(conflict(&id)),
    }
}

/// An event of that size, in words.
pub(crate) fn too_large(size: &str, most: usize) -> Problem {
    let detail = format!(
        "the event has {size}, and dispatch.max_event allows {most}: send less data, such as a link to what is large, or raise it (up to 16MiB)"
    );
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "event_too_large", detail).field("data")
}

/// What every event must be, whichever way it goes.
fn check(event: &EventIn) -> Result<EventType, Problem> {
    let event_type = check_parts(event)?;
    if event.source.as_deref() == Some(operational::SOURCE) {
        let detail = "the source \"tidegate\" is Tidegate's own: choose another, or leave it out";
        return Err(Problem::invalid("source", detail));
    }
    Ok(event_type)
}

/// As of this moment: is it for a time that may be asked for?
pub(crate) fn check_ahead(event: &EventIn, now: OffsetDateTime) -> Result<(), Problem> {
    if event.deliver_at.is_some_and(|at| at - now > time::Duration::days(FURTHEST_DAYS)) {
        let detail = format!("deliver_at is at most {FURTHEST_DAYS} days ahead: send the event when it is nearer");
        return Err(Problem::invalid("deliver_at", detail));
    }
    Ok(())
}

fn check_parts(event: &EventIn) -> Result<EventType, Problem> {
    let event_type = EventType::parse("type", &event.event_type).map_err(Error::from)?;
    check_depth(event.data.get())?;
    for (field, text) in [("source", &event.source), ("ordering_key", &event.ordering_key)] {
        check_text(field, text.as_deref())?;
    }
    if let Some(id) = &event.id {
        MessageId::parse("id", id).map_err(Error::from)?;
    }
    Ok(event_type)
}

/// One batch: commit, then hand over what was born leased. It runs to its end even if every caller has left.
pub(crate) async fn take_in(
    store: Store,
    lease: Lease,
    workers: Workers,
    events: Arc<[NewEvent]>,
) -> Result<Vec<Accepted>, Error> {
    crash_point("persist.before");
    let accepted = store.take_in(Arc::clone(&events), &lease).await?;
    crash_point("persist.after");
    let (leased, is_any_waiting) = born(&events, &accepted);
    workers.hand_over(leased, is_any_waiting);
    Ok(accepted)
}

/// Of what was just taken in: the deliveries that this process has in hand, and whether others wait for anyone.
pub(crate) fn born(events: &[NewEvent], accepted: &[Accepted]) -> (Vec<Claimed>, bool) {
    let (mut leased, mut is_any_waiting) = (Vec::new(), false);
    let flight: Arc<str> = events.first().map_or("", |first| &first.uid).into();
    for (event, accepted) in events.iter().zip(accepted) {
        let Accepted::New { at } = accepted else { continue };
        for delivery in &event.deliveries {
            if delivery.place.is_some() {
                leased.push(claimed(event, delivery, *at, &flight));
            } else {
                is_any_waiting = true;
            }
        }
    }
    (leased, is_any_waiting)
}

fn claimed(event: &NewEvent, delivery: &NewDelivery, at: OffsetDateTime, flight: &Arc<str>) -> Claimed {
    let in_flight = InFlight {
        flight: Arc::clone(flight),
        event_uid: event.uid.clone(),
        subscription: Arc::clone(&delivery.subscription),
        since: Instant::now(),
    };
    Claimed {
        id: delivery.id.clone(),
        tenant: Arc::clone(&event.tenant),
        subscription: Arc::clone(&delivery.subscription),
        event_id: event.id.clone(),
        event_type: event.event_type.clone(),
        event_at: at,
        data: event.data.clone(),
        trace: event.trace.clone(),
        attempts: 0,
        is_manual: false,
        is_operational: false,
        is_ordered: delivery.ordering_key.is_some(),
        fence: 1,
        in_flight: Some(in_flight),
    }
}

/// Tells a repeat from a conflict: everything the caller sent but the id.
fn hash(event: &EventIn) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    let deliver_at = event.deliver_at.map(|at| at.unix_timestamp_nanos().to_string());
    let parts = [
        Some(event.event_type.as_str()),
        event.source.as_deref(),
        event.ordering_key.as_deref(),
        deliver_at.as_deref(),
    ];
    for part in parts {
        // The length before each part keeps ("a", "bc") and ("ab", "c") apart.
        context.update(&part.map_or(u64::MAX, |part| part.len() as u64).to_be_bytes());
        context.update(part.unwrap_or_default().as_bytes());
    }
    context.update(event.data.get().as_bytes());
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

fn check_text(field: &'static str, text: Option<&str>) -> Result<(), Problem> {
    match text {
        Some(text) if text.is_empty() || text.len() > LONGEST_TEXT || text.chars().any(char::is_control) => Err(
            Problem::invalid(field, format!("{field} has 1 to {LONGEST_TEXT} bytes, none of them a control character")),
        ),
        _ => Ok(()),
    }
}

/// `json` is JSON, so brackets outside of strings come in pairs.
fn check_depth(json: &str) -> Result<(), Problem> {
    if memchr::memchr2_iter(b'[', b'{', json.as_bytes()).nth(DEEPEST).is_none() {
        return Ok(());
    }
    let (mut depth, mut is_in_string, mut is_escaped) = (0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => is_in_string = !is_in_string,
            b'[' | b'{' if !is_in_string => depth += 1,
            b']' | b'}' if !is_in_string => depth -= 1,
            _ => (),
        }
        if depth > DEEPEST {
            let detail = format!("data nests deeper than {DEEPEST} arrays and objects: send it flatter");
            return Err(Problem::invalid("data", detail));
        }
    }
    Ok(())
}

fn result(accepted: Accepted) -> &'static str {
    match accepted {
        Accepted::New { .. } => "accepted",
        Accepted::Repeat { .. } => "repeat",
        Accepted::Conflict => "conflict",
    }
}
