//! Bars 3 to 12 with a real Kafka in the path: nothing accepted is lost, whatever dies, hangs, moves or is nonsense.

mod away;
mod database;
mod groups;
mod herd;
mod limits;
mod many;
mod poison;
mod rejected;
mod skew;
mod wiped;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    ops::Range,
    sync::{
        Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread::Scope,
    time::{Duration, Instant},
};

use serde_json::json;
use testkit::{
    Unavailable,
    proxy::FaultProxy,
    receiver::{Receiver, Request},
    wait_until,
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{LATER, assert_repeats_are_equal, deliveries, event_id, lines, replica, statuses, wait_until_all_ended};
use crate::support::{Backend, Call, Setup, Tidegate};

/// One of several replicas on one topic.
fn member(backend: &Backend, roles: &str) -> Setup {
    replica(backend).env("TIDEGATE__SERVER__ROLES", roles)
}

/// Waits until these workers share all partitions of the topic evenly: while one has more than its share, some still move.
fn wait_until_shared(workers: &[&Tidegate]) {
    let held = |worker: &&Tidegate| worker.metric("tidegate_kafka_partitions").unwrap_or(0.0);
    let share = 6.0 / workers.len() as f64;
    wait_until(LATER, "the partitions to be shared", || {
        let held: Vec<f64> = workers.iter().map(held).collect();
        held.iter().sum::<f64>() == 6.0 && held.iter().all(|held| (held - share).abs() < 1.0)
    });
}

/// Sends a batch of events after every pause, each again until it is accepted.
struct Load {
    batch: usize,
    pause: Duration,
    sent: AtomicUsize,
    is_over: Mutex<bool>,
    ended: Condvar,
}

impl Load {
    fn new(batch: usize, pause_ms: u64) -> Self {
        let pause = Duration::from_millis(pause_ms);
        Load { batch, pause, sent: AtomicUsize::new(0), is_over: Mutex::new(false), ended: Condvar::new() }
    }

    /// It goes on until what this returns is dropped.
    fn begin<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, addr: SocketAddr) -> Going<'scope> {
        scope.spawn(move || {
            while !self.is_over_after(self.pause) {
                let start = self.sent.load(Ordering::Relaxed);
                send_patiently(start..start + self.batch, addr);
                self.sent.fetch_add(self.batch, Ordering::Relaxed);
            }
        });
        Going(self)
    }

    fn is_over_after(&self, pause: Duration) -> bool {
        let is_over = self.is_over.lock().unwrap();
        *self.ended.wait_timeout_while(is_over, pause, |is_over| !*is_over).unwrap().0
    }

    fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }
}

/// A load that goes on. A test that fails in the middle of it must not wait for its end.
#[must_use]
struct Going<'a>(&'a Load);

impl Drop for Going<'_> {
    fn drop(&mut self) {
        *self.0.is_over.lock().unwrap() = true;
        self.0.ended.notify_all();
    }
}

/// Of one request.
const MOST_EVENTS: usize = 10_000;

/// Sends events until all of them are accepted. No answer takes longer than a long moment.
fn send_patiently(numbers: Range<usize>, addr: SocketAddr) {
    for start in numbers.clone().step_by(MOST_EVENTS) {
        let body = lines(start..numbers.end.min(start + MOST_EVENTS));
        wait_until(LATER * 2, "events to be accepted", || {
            let asked = Instant::now();
            let answer = Call::new("POST", "/v1/events").body("application/x-ndjson", body.clone()).try_to(addr);
            assert!(asked.elapsed() < Duration::from_secs(15), "an answer took {:?}", asked.elapsed());
            answer.is_ok_and(|answer| answer.status == 202 && answer.json()["rejected"] == 0)
        });
    }
}

/// Lost 0, all delivered, repeats equal; returns how many arrived twice.
fn assert_nothing_lost(addr: SocketAddr, receiver: &Receiver, events: usize) -> usize {
    wait_until_all_ended(addr, events);
    assert_eq!(receiver.distinct(), events, "lost");
    assert_eq!(statuses(addr), [("delivered".to_owned(), events)].into());
    assert_repeats_are_equal(receiver);
    receiver.count() - events
}

/// The way of each of these requests, from when Kafka had the event to the receiver; the longest is the last. Of a repeat
/// the first counts.
fn ways(requests: &[Request]) -> Vec<Duration> {
    let mut first: BTreeMap<&str, Duration> = BTreeMap::new();
    for request in requests {
        let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
        let taken = OffsetDateTime::parse(body["timestamp"].as_str().unwrap(), &Rfc3339).unwrap();
        let way = request.at_wall.duration_since(taken.into()).unwrap_or_default();
        first.entry(request.id()).or_insert(way);
    }
    let mut ways: Vec<Duration> = first.into_values().collect();
    ways.sort_unstable();
    ways
}

/// A broker of one's own, with this one's topic and a PostgreSQL database.
struct Own {
    broker: testkit::kafka::Broker,
    /// The only way to the broker.
    proxy: FaultProxy,
    postgres: testkit::postgres::Shared,
}

impl Own {
    fn start() -> Result<Self, Unavailable> {
        let (broker, proxy) = testkit::kafka::Broker::start_behind_a_proxy()?;
        Ok(Own { broker, proxy, postgres: testkit::postgres()? })
    }

    fn replica(&self) -> Setup {
        let brokers = self.proxy.addr().to_string();
        let setup = crate::support::on_topic(replica(&Backend::Sqlite), &brokers, "events.pending");
        setup.env("DATABASE_URL", &self.postgres.url())
    }
}

fn event(number: usize) -> serde_json::Value {
    json!({"id": event_id(number), "type": "order.created", "data": {"n": number}})
}
