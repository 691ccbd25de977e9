//! From records to rows: decode, route, write, hand over what was born leased.
//!
//! `route` runs for one batch after the other, so that what is first in a partition is first in its line; `write` may run
//! for several at once. Whatever cannot become an event, or makes us panic, is kept as a rejected record. `write` returns when all of its
//! records are in the database, however long that takes.

#[cfg(test)]
mod tests;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use platform::{
    problem::{Chain, Problem},
    shutdown::TASK_PANICS,
    telemetry,
};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use super::{
    record::{BAD_TENANT, Decoded, Incoming, Rejection, TRACE_HEADER},
    tenants::Tenants,
};
use crate::{
    announce::Workers,
    catalog::Catalog,
    error::Error,
    intake::{self, Intake},
    metrics as names,
    store::{Accepted, Lease, NewEvent, Store, rejected::NewRejected},
};

const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The clock of the replica that accepted an event and that of the broker, or of who wrote the record, may be so far apart.
const SKEW: time::Duration = time::Duration::DAY;

/// What became of each event.
type Answers = Vec<Result<Accepted, Rejection>>;

/// What turning records into rows needs.
#[derive(Clone)]
pub(crate) struct Taking {
    pub(crate) store: Store,
    pub(crate) tenants: tenancy::Store,
    pub(crate) catalog: Catalog,
    pub(crate) intake: Intake,
    pub(crate) workers: Workers,
    pub(crate) lease: Lease,
    pub(crate) topic: Arc<str>,
    pub(crate) max_event: usize,
}

/// A batch that knows where it goes.
pub(super) struct Routed {
    events: Vec<NewEvent>,
    /// The record of each event.
    records: Vec<Incoming>,
    rejected: Vec<NewRejected>,
    /// Some of its deliveries have a line to keep.
    pub(super) is_ordered: bool,
}

impl Taking {
    /// Waits until this process knows the subscriptions that a record's taker knew; false if it is told to give up.
    pub(super) async fn freshen(&self, records: &[Incoming], give_up: &CancellationToken) -> bool {
        let wanted = records.iter().map(Incoming::catalog_version).max().unwrap_or(0);
        let mut pause = Duration::from_millis(20);
        while self.catalog.version() < wanted {
            match self.catalog.refresh().await {
                // A version that no row bears, from another database's time: there is nothing more to know.
                Ok(()) => return true,
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "Subscriptions could not be read; records wait for them.")
                }
            }
            if !rest(&mut pause, give_up).await {
                return false;
            }
        }
        true
    }

    pub(super) fn route(&self, records: Vec<Incoming>, tenants: &Tenants) -> Routed {
        let mut routed = Routed { events: Vec::new(), records: Vec::new(), rejected: Vec::new(), is_ordered: false };
        for record in records {
            let read = || tenants.check(&record).and_then(|()| self.event(&record));
            match catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Err(unstorable(&panicked()))) {
                Ok(event) => {
                    routed.is_ordered |= event.deliveries.iter().any(|delivery| delivery.ordering_key.is_some());
                    routed.events.push(event);
                    routed.records.push(record);
                }
                Err(rejection) => routed.rejected.push(self.rejected(record, rejection)),
            }
        }
        routed
    }

    fn event(&self, record: &Incoming) -> Result<NewEvent, Rejection> {
        let _span = span(record).entered();
        let Decoded { tenant, event } = record.decode(self.max_event)?;
        let invalid = |problem: Problem| Rejection::new("invalid_event", problem.detail().to_owned());
        if record.at_ms > 0 {
            intake::check_ahead(&event, at(record.at_ms) + SKEW).map_err(invalid)?;
        }
        let mut event = self.intake.prepare(&tenant, event, None).map_err(invalid)?;
        event.created_at = (record.at_ms > 0).then(|| at(record.at_ms));
        Ok(event)
    }

    fn rejected(&self, record: Incoming, rejection: Rejection) -> NewRejected {
        let Rejection { reason, detail } = rejection;
        tracing::warn!(
            topic = %self.topic, partition = record.partition, offset = record.offset, reason, detail,
            "A record was rejected; it is kept."
        );
        NewRejected {
            id: platform::id::new("rej"),
            tenant: record.tenant().ok().filter(|_| reason != BAD_TENANT).map(str::to_owned),
            topic: Arc::clone(&self.topic),
            partition: record.partition,
            offset: record.offset,
            // Whoever writes to the topic says when; no database has a time before the first ones.
            at: at(record.at_ms.max(0)),
            key: record.key,
            value: record.value,
            headers: record.headers,
            reason,
            detail,
        }
    }

    /// Returns false only if it is told to give up; then nothing may be committed, and nothing is written any more: it could be
    /// behind one in its line that was not.
    pub(super) async fn write(&self, routed: Routed, give_up: &CancellationToken) -> bool {
        if give_up.is_cancelled() {
            return false;
        }
        let Routed { events, records, mut rejected, .. } = routed;
        let Some(answers) = self.take_in(events.into(), give_up).await else { return false };
        let (mut taken, mut known) = (0, 0);
        for (answer, record) in answers.into_iter().zip(records) {
            let rejection = match answer {
                Ok(Accepted::New { .. }) => {
                    taken += 1;
                    continue;
                }
                Ok(Accepted::Repeat { .. }) => {
                    known += 1;
                    continue;
                }
                Ok(Accepted::Conflict) => Rejection::new("id_conflict", "another event has this id"),
                Err(rejection) => rejection,
            };
            rejected.push(self.rejected(record, rejection));
        }
        metrics::counter!(names::KAFKA_RECORDS, "result" => "taken").increment(taken);
        metrics::counter!(names::KAFKA_RECORDS, "result" => "known").increment(known);
        self.keep(rejected, give_up).await
    }

    /// Writes events until the database takes them. One that it never will is told apart from those around it.
    fn take_in<'a>(
        &'a self,
        events: Arc<[NewEvent]>,
        give_up: &'a CancellationToken,
    ) -> BoxFuture<'a, Option<Answers>> {
        Box::pin(async move {
            if events.is_empty() {
                return Some(Vec::new());
            }
            let (mut pause, mut stall) = (Duration::from_millis(20), self.store.stalls().watch());
            loop {
                let (store, lease, workers) = (self.store.clone(), self.lease.clone(), self.workers.clone());
                let taking = AssertUnwindSafe(intake::take_in(store, lease, workers, Arc::clone(&events)));
                match taking.catch_unwind().await.unwrap_or_else(|_| Err(panicked())) {
                    Ok(answers) => return Some(answers.into_iter().map(Ok).collect()),
                    Err(error) if error.is_transient() => {
                        stall.failed();
                        metrics::counter!(names::KAFKA_WRITE_RETRIES).increment(1);
                        tracing::warn!(
                            error = %Chain(&error), count = events.len(),
                            "Records could not be written; trying again."
                        );
                        if !rest(&mut pause, give_up).await {
                            return None;
                        }
                        // What takes too long in one piece, such as what fans out to hundreds each, may do in two.
                        if !error.is_deadline() || events.len() == 1 {
                            continue;
                        }
                    }
                    Err(error) if events.len() == 1 => return Some(vec![Err(unstorable(&error))]),
                    Err(_) => (),
                }
                let (first, second) = events.split_at(events.len() / 2);
                let mut answers = self.take_in(first.into(), give_up).await?;
                answers.extend(self.take_in(second.into(), give_up).await?);
                return Some(answers);
            }
        })
    }

    async fn keep(&self, rejected: Vec<NewRejected>, give_up: &CancellationToken) -> bool {
        let (mut pause, mut stall) = (Duration::from_millis(20), self.store.stalls().watch());
        while !rejected.is_empty() {
            match self.store.keep_rejected(&rejected).await {
                Ok(()) => {
                    for record in &rejected {
                        metrics::counter!(names::KAFKA_RECORDS, "result" => "rejected").increment(1);
                        metrics::counter!(names::KAFKA_REJECTED, "reason" => record.reason).increment(1);
                    }
                    return true;
                }
                Err(error) => {
                    stall.failed();
                    tracing::warn!(error = %Chain(&error), "Rejected records could not be kept; trying again.");
                    if !rest(&mut pause, give_up).await {
                        return false;
                    }
                }
            }
        }
        true
    }
}

/// The panic itself was told where it happened.
fn panicked() -> Error {
    metrics::counter!(TASK_PANICS, "task" => "kafka batch").increment(1);
    Error::Panicked
}

fn unstorable(error: &Error) -> Rejection {
    Rejection::new("unstorable", Chain(error).to_string())
}

/// A part of the trace that the event was sent in, if it was.
fn span(record: &Incoming) -> Span {
    let (partition, offset) = (record.partition, record.offset);
    let span = tracing::info_span!(target: telemetry::REQUEST, "take in", otel.kind = "consumer", partition, offset);
    if let Some(trace) = record.header(TRACE_HEADER).and_then(|trace| std::str::from_utf8(trace).ok()) {
        telemetry::follow(&span, trace);
    }
    span
}

/// Waits, longer each time; false if it is told to give up meanwhile.
pub(super) async fn rest(pause: &mut Duration, give_up: &CancellationToken) -> bool {
    let is_over = give_up.run_until_cancelled(tokio::time::sleep(*pause)).await.is_none();
    *pause = (*pause * 2).min(LONGEST_PAUSE);
    !is_over
}

fn at(ms: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}
