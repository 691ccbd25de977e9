//! One delivery, from a runner's hands to its record: gate, signature, call, outcome.

#[cfg(test)]
mod tests;

use std::{borrow::Cow, num::NonZeroU64, panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use bytes::Bytes;
use futures_util::FutureExt;
use gate::gate::{By, Entry, Outcome as Report, Refused};
use platform::{
    crash::crash_point,
    http_client::{Answer, Call, CallError, Turn},
    problem::Chain,
    shutdown::TASK_PANICS,
    telemetry,
};
use serde::Serializer;
use time::OffsetDateTime;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};
use tracing::{Instrument, Span, field::Empty};

use super::{
    Inner, Job,
    lane::{LaneKey, Placed, Shape},
    outcomes::Ended,
};
use crate::{
    catalog::{Endpoint, Reach},
    clock,
    delivery::{MessageId, Next, Outcome, Status, decide},
    metrics as names,
    store::{Claimed, NewAttempt, Record, records::PARKED},
};

/// A refusal this short is waited out in the lane; a longer one goes back to the store.
const SHORT_WAIT: Duration = Duration::from_millis(1100);
/// How long a delivery first waits for another call to end, where all places are taken; then twice as long, and so on.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// After a fault of ours, or a refusal that names no time.
const LONG_WAIT: Duration = Duration::from_secs(300);
/// A delivery of a subscription that is off is looked at again after this long and up to twice as long, or when it is on.
const PARKED_WAIT: Duration = Duration::from_secs(3600);
/// Why a delivery is put off that the gate was not asked for.
const LANE_FULL: &str = "put off behind others for the same subscription";
const TOO_LATE: &str = "put off: it waited through half of its worker's lease, and is claimed anew";
const GIVEN_BACK: &str = "put off: the worker that had it was stopped";
const UNREAD: &str = "put off: the subscription could not be read from the database";
/// Of what is said of a call that had no answer.
const LONGEST_DETAIL: usize = 500;
const ONE: NonZeroU64 = NonZeroU64::MIN;

impl Inner {
    /// Puts a job into its lane, and begins a runner if the lane has room for one.
    pub(super) fn offer(self: &Arc<Self>, job: Job) {
        let Claimed { tenant, subscription, .. } = &job.delivery;
        let Some(endpoint) = self.deps.catalog.endpoint(tenant, subscription) else {
            return self.look_again(job);
        };
        let key = LaneKey { tenant: Arc::clone(tenant), subscription: Arc::clone(subscription) };
        if self.tasks.stopping().is_cancelled() {
            // It was on its way here when the worker gave its leases back.
            return self.give_back(&job);
        }
        if endpoint.enabled && endpoint.reach.is_none() {
            // It has no use for a place in the lane.
            return self.write_later(unusable(&job.delivery));
        }
        match self.lanes.place(&key, job, shape(&endpoint), Instant::now()) {
            Placed::Queued => (),
            Placed::Run(job) => self.begin(key, job, endpoint.reach.as_ref()),
            Placed::Full(job, wait) => {
                metrics::counter!(names::LANE_FULL).increment(1);
                self.write_later(deferred(&job.delivery, wait, LANE_FULL));
            }
        }
    }

    /// Somebody else is to begin it.
    pub(super) fn give_back(self: &Arc<Self>, job: &Job) {
        self.write_later(deferred(&job.delivery, Duration::ZERO, GIVEN_BACK));
    }

    /// This process does not know the subscription: it is gone, or another replica has just made it.
    fn look_again(self: &Arc<Self>, job: Job) {
        let inner = Arc::clone(self);
        self.tasks.spawn("unknown subscription", async move {
            let refreshed = inner.deps.catalog.refresh_since(job.claimed_at).await;
            let Claimed { tenant, subscription, .. } = &job.delivery;
            match refreshed {
                Ok(()) if inner.deps.catalog.endpoint(tenant, subscription).is_some() => inner.offer(job),
                Ok(()) => inner.write_later(inner.without_endpoint(&job.delivery)),
                Err(error) => {
                    tracing::warn!(
                        %subscription, error = %Chain(&error),
                        "A subscription could not be read; its delivery waits."
                    );
                    inner.write_later(deferred(&job.delivery, SHORT_WAIT, UNREAD));
                }
            }
        });
    }

    /// The subscription is gone, or it is there and this replica cannot read it.
    fn without_endpoint(&self, delivery: &Claimed) -> Record {
        if self.deps.catalog.is_unusable(&delivery.tenant, &delivery.subscription) {
            return unusable(delivery);
        }
        ended(delivery, Status::Cancelled, "the subscription is gone")
    }

    /// Runs a job when its host has a turn for it: until then nothing is kept of it but itself.
    fn begin(self: &Arc<Self>, key: LaneKey, job: Job, reach: Option<&Reach>) {
        let inner = Arc::clone(self);
        let run = move |turn| {
            inner.lanes.has_turn();
            // Boxed: a large future is moved several times on its way into the runtime.
            Arc::clone(&inner).tasks.spawn("delivery", Box::pin(inner.run(key, job, turn)));
        };
        match reach {
            Some(reach) => self.deps.client.when_free(&reach.target, move |turn| run(Some(turn))),
            None => run(None),
        }
    }

    async fn run(self: Arc<Self>, key: LaneKey, job: Job, turn: Option<Turn>) {
        let kept = self.leases.keep(&job);
        // A panic must not cost the lane its runner, nor the delivery its future. Pinned, because a future that is handed over
        // by value is held, and moved, twice.
        let attempted = {
            let deliver = pin!(self.deliver(&key, &job, turn));
            AssertUnwindSafe(deliver).catch_unwind().await
        };
        let record = attempted.unwrap_or_else(|_| panicked(&job.delivery));
        let is_urgent = self.lanes.called(&key) || job.delivery.is_ordered;
        self.meters.ended(record.status);
        let is_soon =
            record.due_in.is_some_and(|wait| wait < self.deps.config.poll_interval) || record.raises.is_some();
        // An ordered line has a new head.
        let wakes_poller = is_soon || job.delivery.is_ordered;
        let ended = Ended { inner: Arc::clone(&self), record, runner: Some((key, kept)), wakes_poller };
        self.leave(ended, is_urgent).await;
    }

    /// A runner is done with a job, its outcome written: the next in its lane may go.
    pub(super) fn go_on(self: &Arc<Self>, key: LaneKey) {
        let may_go_on = !self.tasks.stopping().is_cancelled();
        if let Some(job) = self.lanes.next(&key, may_go_on) {
            let endpoint = self.deps.catalog.endpoint(&key.tenant, &key.subscription);
            self.begin(key, job, endpoint.as_ref().and_then(|endpoint| endpoint.reach.as_ref()));
        }
        self.made_room();
    }

    async fn leave(&self, ended: Ended, is_urgent: bool) {
        if self.outcomes.leave(ended, is_urgent).await.is_err() {
            tracing::error!("An outcome was not written: nobody is left to write it. Its lease will end instead.");
        }
    }

    fn write_later(self: &Arc<Self>, record: Record) {
        self.meters.ended(record.status);
        let inner = Arc::clone(self);
        self.tasks.spawn("deferral", async move {
            let ended = Ended { inner: Arc::clone(&inner), record, runner: None, wakes_poller: true };
            inner.leave(ended, false).await;
        });
    }

    async fn deliver(&self, key: &LaneKey, job: &Job, mut turn: Option<Turn>) -> Record {
        let delivery = &job.delivery;
        let mut next_place = FIRST_WAIT.mul_f64(0.5 + jitter());
        let mut head = None;
        loop {
            let Some(endpoint) = self.deps.catalog.endpoint(&delivery.tenant, &delivery.subscription) else {
                return self.without_endpoint(delivery);
            };
            if !endpoint.enabled {
                if Box::pin(self.is_on_after_all(&endpoint, job.claimed_at)).await {
                    continue;
                }
                return deferred(delivery, PARKED_WAIT.mul_f64(1.0 + jitter()), PARKED);
            }
            let Some(reach) = &endpoint.reach else { return unusable(delivery) };
            // Past half its lease the first renewal might come too late: let someone start afresh.
            if job.claimed_at.elapsed() > self.deps.lease.length / 2 {
                return deferred(delivery, Duration::ZERO, TOO_LATE);
            }
            // Before the pass: what the gate lets go must not wait, or the receiver sees it in one heap.
            let mut turn = match turn.take() {
                Some(turn) => turn,
                None => self.deps.client.turn(&reach.target).await,
            };
            match self.enter(&endpoint).await {
                Entry::Pass(pass) => {
                    drop(head);
                    if !pass.delay().is_zero() {
                        // Others need not wait with it.
                        drop(turn);
                        tokio::time::sleep(pass.delay()).await;
                        turn = self.deps.client.turn(&reach.target).await;
                    }
                    turn.calls();
                    let (record, report) = self.attempt(&endpoint, reach, job).instrument(span(delivery)).await;
                    turn.answered();
                    pass.exit(report).await;
                    self.note_circuit(&endpoint, report == Report::Success).await;
                    return record;
                }
                Entry::Refused(refused) => {
                    drop(turn);
                    let mut wait = refused.retry_after.unwrap_or(LONG_WAIT);
                    if refused.by == By::Concurrency {
                        // A place is sure to be free then; it is likely to be free long before, when a call ends.
                        wait = wait.min(next_place);
                        next_place *= 2;
                    }
                    metrics::counter!(names::REFUSED, "by" => by(refused)).increment(1);
                    if refused.by == By::Circuit {
                        self.note_circuit(&endpoint, false).await;
                    }
                    let shape = shape(&endpoint);
                    let put_off =
                        || deferred(delivery, self.lanes.slot(key, shape, Instant::now(), wait), reason(refused));
                    if wait > SHORT_WAIT || self.tasks.stopping().is_cancelled() {
                        return put_off();
                    }
                    let due = Instant::now() + wait;
                    if refused.by == By::Rate && head.is_none() {
                        let Some(line) = self.lanes.line(key, shape) else { return put_off() };
                        head = self.stand_in(line, job).await;
                    }
                    tokio::time::sleep_until(due).await;
                }
            }
        }
    }

    /// Waits until it is one of those that may ask for a slot of the rate; not past half of the lease, nor while stopping.
    async fn stand_in(&self, line: Arc<Semaphore>, job: &Job) -> Option<OwnedSemaphorePermit> {
        let first = timeout_at(job.claimed_at + self.deps.lease.length / 2, line.acquire_owned());
        self.tasks.stopping().run_until_cancelled(first).await?.ok()?.ok()
    }

    /// Redis serves so many questions at a time best; thousands at once would only miss its deadline.
    async fn enter(&self, endpoint: &Endpoint) -> Entry {
        let _asking = self.asking.acquire().await;
        self.deps.gate.enter(&endpoint.guarded.key, &endpoint.guarded.policy, ONE).await
    }

    /// Another replica may have switched it on since it was last read here.
    async fn is_on_after_all(&self, endpoint: &Endpoint, claimed_at: Instant) -> bool {
        if let Err(error) = self.deps.catalog.refresh_since(claimed_at).await {
            tracing::warn!(subscription = %endpoint.id, error = %Chain(&error), "A subscription could not be read.");
        }
        self.deps.catalog.endpoint(&endpoint.tenant, &endpoint.id).is_some_and(|now| now.enabled)
    }

    async fn attempt(&self, endpoint: &Endpoint, reach: &Reach, job: &Job) -> (Record, Report) {
        let delivery = &job.delivery;
        let started = Instant::now();
        let body = body(delivery);
        let headers = headers(reach, delivery, &body);
        let call = Call {
            target: &reach.target,
            headers: &headers,
            body,
            deadline: endpoint.timeout,
            tls: reach.tls.as_ref(),
        };
        crash_point("send.before");
        let answer = self.deps.client.post(call).await;
        crash_point("send.after");
        let duration = started.elapsed();
        let outcome = outcome(&answer);
        tell(&outcome);
        self.meters.attempted(&outcome, duration);
        let attempt = new_attempt(duration, answer, &outcome);
        let record = self.conclude(endpoint, delivery, &outcome, attempt).await;
        (record, if outcome.is_success() { Report::Success } else { Report::Failure })
    }

    /// What the rules say follows, and what the subscription itself must know of it.
    async fn conclude(
        &self,
        endpoint: &Endpoint,
        delivery: &Claimed,
        outcome: &Outcome,
        attempt: NewAttempt,
    ) -> Record {
        let number = delivery.attempts + 1;
        let next = decide(&endpoint.retry, number, outcome, jitter());
        self.note_health(endpoint, outcome.is_success(), &next).await;
        let (status, due_in, last_error) = match next {
            Next::Delivered => {
                self.meters.delivered_after(OffsetDateTime::now_utc() - delivery.event_at);
                (Status::Delivered, None, None)
            }
            Next::RetryAfter(_) if delivery.is_manual => {
                (Status::Failed, None, Some(format!("{outcome} (retried by hand)")))
            }
            Next::RetryAfter(wait) => (Status::Retrying, Some(wait), Some(outcome.to_string())),
            Next::Failed { reason } | Next::DisableSubscription { reason } => {
                (Status::Failed, None, Some(format!("{reason}: {outcome}")))
            }
        };
        let raises =
            if status == Status::Failed { self.tell_of_failure(endpoint, delivery, &last_error) } else { None };
        Record { status, due_in, last_error, attempt: Some(attempt), raises, ..ended(delivery, status, "") }
    }
}

/// An attempt, as a part of the trace that its event was accepted in.
fn span(delivery: &Claimed) -> Span {
    let span = tracing::info_span!(
        target: telemetry::REQUEST, "delivery", otel.kind = "client", otel.status_code = Empty, delivery = delivery.id,
        event = delivery.event_id, subscription = &*delivery.subscription, attempt = i64::from(delivery.attempts + 1),
        http.response.status_code = Empty, error.type = Empty
    );
    if let Some(trace) = &delivery.trace {
        telemetry::follow(&span, trace);
    }
    span
}

/// Tells the span of an attempt how it ended.
fn tell(outcome: &Outcome) {
    let span = Span::current();
    if let Outcome::Answered { status, .. } = outcome {
        span.record("http.response.status_code", i64::from(*status));
    }
    if !outcome.is_success() {
        span.record("error.type", outcome.class()).record("otel.status_code", "ERROR");
    }
}

fn shape(endpoint: &Endpoint) -> Shape {
    Shape { calls: endpoint.max_concurrency as usize, per_second: endpoint.rate_limit }
}

fn by(refused: Refused) -> &'static str {
    match refused.by {
        By::Rate => "rate",
        By::Circuit => "circuit",
        By::Concurrency => "concurrency",
    }
}

fn reason(refused: Refused) -> &'static str {
    match refused.by {
        By::Rate => "put off by the rate limit",
        By::Circuit => "put off by the open circuit",
        By::Concurrency => "put off by the concurrency limit",
    }
}

/// Put off, no attempt spent.
fn deferred(delivery: &Claimed, wait: Duration, reason: &str) -> Record {
    Record { due_in: Some(wait), ..ended(delivery, Status::Throttled, reason) }
}

/// Another replica may be able to, now or soon: it waits as long again as it has waited, within bounds.
fn unusable(delivery: &Claimed) -> Record {
    let waited = Duration::try_from(OffsetDateTime::now_utc() - delivery.event_at).unwrap_or_default();
    let wait = waited.clamp(SHORT_WAIT, LONG_WAIT);
    deferred(delivery, wait, "put off: the subscription cannot be used, see the log")
}

/// A fault of ours, which the receiver's schedule does not pay for.
fn panicked(delivery: &Claimed) -> Record {
    metrics::counter!(TASK_PANICS, "task" => "delivery").increment(1);
    tracing::error!(delivery = delivery.id, "A delivery panicked; it is put off.");
    deferred(delivery, LONG_WAIT, "put off by a fault in Tidegate")
}

fn ended(delivery: &Claimed, status: Status, reason: &str) -> Record {
    Record {
        delivery: delivery.id.clone(),
        tenant: Arc::clone(&delivery.tenant),
        fence: delivery.fence,
        is_ordered: delivery.is_ordered,
        status,
        due_in: None,
        last_error: (!reason.is_empty()).then(|| reason.to_owned()),
        attempt: None,
        raises: None,
        in_flight: delivery.in_flight.clone(),
    }
}

/// The same bytes at every attempt: they are made of the event alone.
fn body(delivery: &Claimed) -> Bytes {
    let at = platform::moment::written(delivery.event_at);
    let mut body = Vec::with_capacity(delivery.data.len() + delivery.event_type.len() + at.len() + 40);
    // Event types hold no character that JSON escapes.
    body.extend_from_slice(b"{\"type\":\"");
    body.extend_from_slice(delivery.event_type.as_bytes());
    body.extend_from_slice(b"\",\"timestamp\":\"");
    body.extend_from_slice(at.as_bytes());
    body.extend_from_slice(b"\",\"data\":");
    body.extend_from_slice(&delivery.data);
    if delivery.is_operational {
        // Nobody else's event has it, so that receivers can tell ours.
        body.extend_from_slice(b",\"source\":\"tidegate\"");
    }
    body.push(b'}');
    body.into()
}

fn headers(reach: &Reach, delivery: &Claimed, body: &[u8]) -> Vec<(HeaderName, HeaderValue)> {
    let timestamp = clock::unix_seconds();
    let id = MessageId::parse("id", &delivery.event_id);
    let signature = id.map(|id| reach.signer.sign(id, timestamp, body)).unwrap_or_default();
    let mut headers = Vec::with_capacity(reach.headers.len() + 5);
    let ours = [
        (header::CONTENT_TYPE, "application/json"),
        (header::USER_AGENT, concat!("Tidegate/", env!("CARGO_PKG_VERSION"))),
    ];
    for (name, value) in ours {
        // A subscription's own takes its place: receivers take two for none, or for an attack.
        if reach.headers.iter().all(|(own, _)| *own != name) {
            headers.push((name, HeaderValue::from_static(value)));
        }
    }
    headers.push((HeaderName::from_static("webhook-timestamp"), timestamp.into()));
    for (name, value) in [("webhook-id", delivery.event_id.as_str()), ("webhook-signature", signature.as_str())] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.push((HeaderName::from_static(name), value));
        }
    }
    headers.extend(reach.headers.iter().cloned());
    headers
}

fn outcome(answer: &Result<Answer, CallError>) -> Outcome {
    match answer {
        Ok(answer) => Outcome::Answered { status: answer.status.as_u16(), retry_after: answer.retry_after },
        Err(error) => Outcome::NoAnswer { class: error.class(), detail: Cow::Owned(cut(error.to_string())) },
    }
}

/// A certificate names as many hosts as its owner likes, and the error of one that does not fit lists them.
fn cut(mut detail: String) -> String {
    if detail.len() > LONGEST_DETAIL {
        detail.truncate(detail.floor_char_boundary(LONGEST_DETAIL));
        detail.push('…');
    }
    detail
}

fn new_attempt(duration: Duration, answer: Result<Answer, CallError>, outcome: &Outcome) -> NewAttempt {
    let is_success = outcome.is_success();
    let answer = answer.ok();
    NewAttempt {
        duration,
        response_status: answer.as_ref().map(|answer| answer.status.as_u16()),
        response_headers: answer.as_ref().map(|answer| header_json(&answer.headers)),
        response_body: answer.map(|answer| answer.body),
        error_class: (!is_success).then(|| outcome.class()),
        error: (!is_success).then(|| outcome.to_string()),
    }
}

/// One text for each name, in their order: values of a header that was sent more than once are joined, as a proxy would.
fn header_json(headers: &HeaderMap) -> String {
    let mut pairs: Vec<(&str, Cow<'_, str>)> = Vec::with_capacity(headers.len());
    for (name, value) in headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        match pairs.iter_mut().find(|(known, _)| *known == name.as_str()) {
            Some((_, joined)) => *joined = format!("{joined}, {value}").into(),
            None => pairs.push((name.as_str(), value)),
        }
    }
    pairs.sort_unstable_by_key(|(name, _)| *name);
    let mut json = Vec::with_capacity(256);
    let written = serde_json::Serializer::new(&mut json).collect_map(pairs);
    written.map(|()| String::from_utf8(json).unwrap_or_default()).unwrap_or_default()
}

fn jitter() -> f64 {
    fastrand::f64()
}
