//! Intake where there is a topic: events go there as they came in, and workers do the rest.
//!
//! An id that the caller chose is looked up first, so that a repeat gets the same answer and another event under a known id
//! a 409. The database is asked, but not waited for: who reads the record checks again.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, future::join_all, stream};
use platform::{id, problem::Problem, shutdown::Tasks};
use time::OffsetDateTime;

use super::{EventIn, Intake, answer, hash};
use crate::{
    batch::Batcher,
    error::Error,
    kafka::{Outgoing, Producer, VERSION},
    metrics as names,
    model::Event,
    store::{Accepted, KnownEvent, Store},
};

/// How long an id may take to be looked up before Kafka is told of the event all the same.
const LOOK_UP: Duration = Duration::from_millis(250);

/// The way into Kafka, and the ids that are known already.
#[derive(Clone)]
pub(super) struct Topic {
    producer: Producer,
    store: Store,
    known: Batcher<(Arc<str>, String), Option<KnownEvent>>,
}

impl Intake {
    /// Reads events, sends them together, and answers for each.
    pub(super) async fn accept_all_into(
        &self,
        topic: &Topic,
        tenant: &Arc<str>,
        bodies: &[Bytes],
    ) -> Vec<Result<Event, Problem>> {
        let events: Vec<_> = bodies.iter().map(|body| self.read_good(body)).collect();
        let known = topic.find_all(tenant, &events).await;
        let twins = twins(&events);
        let mut repeats = Vec::new();
        let mut answers: Vec<Option<Result<Event, Problem>>> = Vec::with_capacity(bodies.len());
        let mut fresh = Vec::with_capacity(bodies.len());
        for (place, (event, known)) in events.into_iter().zip(known).enumerate() {
            let answer = match (event, known, twins[place]) {
                (Err(problem), ..) => Some(Err(problem)),
                (Ok(event), Some(known), _) => Some(answer(known.answer(&event), event, None)),
                (Ok(event), None, Some(Twin { is_equal: false, .. })) => Some(answer(Accepted::Conflict, event, None)),
                (Ok(event), None, Some(Twin { first, .. })) => {
                    repeats.push((place, first, event));
                    None
                }
                (Ok(event), None, None) => {
                    fresh.push((place, Fresh::new(event)));
                    None
                }
            };
            answers.push(answer);
        }
        let (catalog_version, traceparent) = (self.catalog.version(), platform::telemetry::traceparent());
        let mut records: Vec<Outgoing<'_>> = Vec::with_capacity(fresh.len());
        for (place, fresh) in &fresh {
            records.push(fresh.record(tenant, bodies[*place].trim_ascii(), catalog_version, traceparent.clone()));
        }
        let sent = topic.producer.send_all(&records).await;
        drop(records);
        let concluding = fresh
            .into_iter()
            .zip(sent)
            .map(async |((place, Fresh { event, .. }), sent)| (place, self.conclude(topic, tenant, event, sent).await));
        // What the database takes in Kafka's stead shares its commits; else there is nothing to wait for.
        let concluded: Vec<_> = match topic.producer.falls_back() {
            true => join_all(concluding).await,
            false => stream::iter(concluding).then(|one| one).collect().await,
        };
        for (place, answer) in concluded {
            answers[place] = Some(answer);
        }
        for (place, first, event) in repeats {
            answers[place] = answers[first].as_ref().map(|first| match first {
                Ok(Event { created_at, queued_in, .. }) => {
                    let repeat = answer(Accepted::Repeat { at: *created_at }, event, None)?;
                    Ok(Event { queued_in: *queued_in, ..repeat })
                }
                Err(problem) => Err(problem.clone()),
            });
        }
        answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(Error::Closed.into()))).collect()
    }

    /// Into Kafka, byte for byte. A worker finds its subscriptions.
    pub(super) async fn accept_into(
        &self,
        topic: &Topic,
        tenant: &Arc<str>,
        event: EventIn,
        body: &[u8],
    ) -> Result<Event, Problem> {
        if let Some(known) = topic.find(tenant, &event).await {
            return answer(known.answer(&event), event, None);
        }
        let fresh = Fresh::new(event);
        let record = fresh.record(tenant, body, self.catalog.version(), platform::telemetry::traceparent());
        let sent = topic.producer.send(&record).await;
        self.conclude(topic, tenant, fresh.event, sent).await
    }

    /// Says what Kafka said; while it is away the database may stand in.
    async fn conclude(
        &self,
        topic: &Topic,
        tenant: &Arc<str>,
        event: EventIn,
        sent: Result<OffsetDateTime, Error>,
    ) -> Result<Event, Problem> {
        match sent {
            Ok(at) => answer(Accepted::New { at }, event, None),
            // Others of its key may wait in Kafka, and the database would deliver it before them.
            Err(Error::KafkaAway) if topic.producer.falls_back() && event.ordering_key.is_some() => {
                let detail = "Kafka, which keeps the order of events with an ordering_key, does not take them right now; try again";
                Err(Problem::unavailable("kafka_unavailable", detail, 1))
            }
            Err(Error::KafkaAway) if topic.producer.falls_back() => {
                let accepted = self.accept_event(tenant, event, None).await?;
                metrics::counter!(names::QUEUED_IN_DATABASE).increment(1);
                Ok(Event { queued_in: Some("database"), ..accepted })
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Topic {
    pub(super) fn new(producer: Producer, store: Store, tasks: &Tasks) -> Self {
        let for_ids = store.clone();
        let find = move |keys: Vec<_>| find(for_ids.clone(), keys);
        Topic { producer, store, known: Batcher::start(tasks, "known ids", 4, Duration::ZERO, find) }
    }

    /// What is known by this id. A database that does not answer at once stops nobody: the worker that reads the record
    /// looks again, and keeps a conflict as a rejected record.
    async fn find(&self, tenant: &Arc<str>, event: &EventIn) -> Option<KnownEvent> {
        let id = event.id.clone()?;
        let found = tokio::time::timeout(LOOK_UP, self.known.write((Arc::clone(tenant), id))).await;
        match found {
            Ok(Ok(known)) => known,
            Ok(Err(_)) | Err(_) => {
                metrics::counter!(names::IDS_NOT_CHECKED).increment(1);
                None
            }
        }
    }

    /// The same for many at once, in one question.
    async fn find_all(&self, tenant: &Arc<str>, events: &[Result<EventIn, Problem>]) -> Vec<Option<KnownEvent>> {
        let id = |event: &Result<EventIn, Problem>| event.as_ref().ok().and_then(|event| event.id.clone());
        let ids: Vec<Option<String>> = events.iter().map(id).collect();
        let keys: Vec<_> = ids.iter().flatten().map(|id| (Arc::clone(tenant), id.clone())).collect();
        if keys.is_empty() {
            return vec![None; events.len()];
        }
        let found = tokio::time::timeout(LOOK_UP, self.store.known_events(&keys)).await;
        let Ok(Ok(found)) = found else {
            metrics::counter!(names::IDS_NOT_CHECKED).increment(keys.len() as u64);
            return vec![None; events.len()];
        };
        let mut found = found.into_iter();
        ids.iter().map(|id| id.as_ref().and_then(|_| found.next().flatten())).collect()
    }
}

/// An earlier event of the same request with the same id.
#[derive(Clone, Copy)]
struct Twin {
    first: usize,
    is_equal: bool,
}

/// The twin of each event: Kafka takes both, and the caller should hear of a conflict now.
fn twins(events: &[Result<EventIn, Problem>]) -> Vec<Option<Twin>> {
    let mut firsts: HashMap<&str, (usize, &EventIn)> = HashMap::new();
    let twins = events.iter().enumerate().map(|(place, event)| {
        let event = event.as_ref().ok()?;
        let (first, earlier) = *firsts.entry(event.id.as_deref()?).or_insert((place, event));
        (first < place).then(|| Twin { first, is_equal: hash(earlier) == hash(event) })
    });
    twins.collect()
}

/// An event that nobody knows yet. It has an id: the caller's, or one that is made here.
struct Fresh {
    event: EventIn,
    is_given: bool,
}

impl Fresh {
    fn new(event: EventIn) -> Self {
        let is_given = event.id.is_some();
        let id = event.id.unwrap_or_else(|| id::new("evt"));
        Fresh { event: EventIn { id: Some(id), ..event }, is_given }
    }

    fn record<'a>(
        &'a self,
        tenant: &'a str,
        value: &'a [u8],
        catalog_version: i64,
        traceparent: Option<String>,
    ) -> Outgoing<'a> {
        let id = self.event.id.as_deref().unwrap_or_default();
        let key = self.event.ordering_key.as_deref().unwrap_or(id);
        let id = (!self.is_given).then_some(id);
        Outgoing { version: VERSION, tenant, key, id, value, catalog_version, traceparent }
    }
}

impl KnownEvent {
    fn answer(&self, event: &EventIn) -> Accepted {
        if self.hash == hash(event) { Accepted::Repeat { at: self.at } } else { Accepted::Conflict }
    }
}

async fn find(store: Store, keys: Vec<(Arc<str>, String)>) -> Result<Vec<Option<KnownEvent>>, Error> {
    Ok(store.known_events(&keys).await?)
}
