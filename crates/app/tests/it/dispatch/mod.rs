//! Events through the built binary to a real receiver, while processes and databases are killed, stopped and started.

mod bad_input;
mod crash_points;
mod disabled;
mod fair;
mod fenced;
mod foreign;
mod full_disk;
#[cfg(feature = "kafka")]
mod guarded;
mod jobs;
#[cfg(feature = "kafka")]
mod kafka;
mod keep_alive;
mod lane;
mod leaving;
mod many_rows;
mod nothing_lost;
mod official;
mod once;
mod operational;
mod operators;
mod order;
mod outage;
mod own_listeners;
mod private_receivers;
mod retry;
mod rotation;
mod signatures;
mod steady;
mod stuck;
mod tenants;
mod tls;
mod unusable;

use std::{collections::BTreeMap, net::SocketAddr, ops::Range, time::Duration};

use serde_json::{Value, json};
use testkit::{receiver::Receiver, wait::try_wait_until, wait_until};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::support::{Backend, Call, MASTER_KEY, Setup, Tidegate, size};

/// For what needs a lease to end, or a backlog to drain.
const LATER: Duration = Duration::from_secs(60);
/// The shortest there is, so that what a dead worker held comes back soon.
const LEASE: Duration = Duration::from_secs(5);

/// A process that may call receivers on loopback, and shares its secrets with the others on the same database.
fn replica(backend: &Backend) -> Setup {
    backend
        .under(Setup::serve())
        .env("TIDEGATE_MASTER_KEY", MASTER_KEY)
        .env("TIDEGATE__DISPATCH__LEASE", "5s")
        .env("RETRY_POLL_INTERVAL", "1s")
}

/// For `deliver_at`: a time that no test waits for.
fn tomorrow() -> String {
    (OffsetDateTime::now_utc() + time::Duration::DAY).format(&Rfc3339).unwrap()
}

/// Makes a subscription to everything, with these settings added.
#[track_caller]
fn subscribe(addr: SocketAddr, url: &str, more: Value) -> Value {
    let mut settings = json!({"url": url, "event_types": ["**"], "rate_limit": 10_000});
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Call::post("/v1/subscriptions", settings).to(addr).expect(201)
}

/// Waits until a replica knows of `count` subscriptions, also those that another made.
fn wait_for_subscriptions(addr: SocketAddr, count: usize) {
    let explained = || Call::post("/v1/events/explain", json!({"type": "a.b", "data": {}})).to(addr).expect(200);
    wait_until(LATER, "the subscriptions to be known", || explained().as_array().unwrap().len() == count);
}

#[track_caller]
fn send(addr: SocketAddr, event: Value) -> Value {
    Call::post("/v1/events", event).to(addr).expect(202)
}

/// Sends events in one request; all are accepted.
#[track_caller]
fn send_all(addr: SocketAddr, events: impl Iterator<Item = Value>) {
    let body: String = events.map(|event| format!("{event}\n")).collect();
    let answer = Call::new("POST", "/v1/events").body("application/x-ndjson", body).to(addr).expect(202);
    assert_eq!(answer["rejected"], 0, "{answer}");
}

fn event_id(number: usize) -> String {
    format!("e{number:06}")
}

/// NDJSON with one event for each number.
fn lines(numbers: Range<usize>) -> String {
    let line = |number| {
        let event = json!({"id": event_id(number), "type": "order.created", "data": {"n": number}});
        format!("{event}\n")
    };
    numbers.map(line).collect()
}

/// Sends events until all of them are accepted, whatever dies meanwhile; `addr_of` says where each attempt goes.
fn send_until_accepted(numbers: Range<usize>, mut addr_of: impl FnMut() -> SocketAddr) {
    let (body, count) = (lines(numbers.clone()), numbers.len());
    let accepted = try_wait_until(LATER, "events to be accepted", || {
        let call = Call::new("POST", "/v1/events").body("application/x-ndjson", body.clone());
        let answer = call.try_to(addr_of()).ok().filter(|answer| answer.status == 202)?;
        (answer.json()["accepted"] == count).then_some(())
    });
    accepted.unwrap_or_else(|timed_out| panic!("{timed_out}: {numbers:?}"));
}

/// Every delivery, the newest first.
fn deliveries(addr: SocketAddr, query: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut after = String::new();
    loop {
        let page = Call::get(&format!("/v1/deliveries?limit=1000{query}{after}")).to(addr).expect(200);
        all.extend(page["data"].as_array().unwrap().iter().cloned());
        let Some(next) = page["next"].as_str() else { return all };
        after = format!("&after={next}");
    }
}

/// How many deliveries there are of each status.
fn statuses(addr: SocketAddr) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for delivery in deliveries(addr, "") {
        *counts.entry(delivery["status"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    counts
}

/// Waits until every delivery has ended. A list says so, not one question for each status: between two questions a
/// delivery may move from a status that is still to be asked for to one that was.
fn wait_until_ended(addr: SocketAddr) {
    let has_ended = |status: &str| ["delivered", "failed", "cancelled"].contains(&status);
    wait_until(LATER, "every delivery to end", || statuses(addr).keys().all(|status| has_ended(status)));
}

/// The same, and that there are so many: through Kafka, rows come after the answer.
fn wait_until_all_ended(addr: SocketAddr, count: usize) {
    let has_ended = |status: &str| ["delivered", "failed", "cancelled"].contains(&status);
    let mut last = BTreeMap::new();
    let ended = try_wait_until(size_of_wait(), "every delivery to end", || {
        last = statuses(addr);
        (last.values().sum::<usize>() == count && last.keys().all(|status| has_ended(status))).then_some(())
    });
    ended.unwrap_or_else(|timed_out| panic!("{timed_out}: {last:?} of {count}"));
}

/// A long run has a long backlog.
fn size_of_wait() -> Duration {
    Duration::from_secs(size(90, 1800) as u64)
}

/// Waits until the one delivery of an event has this status, and gives it.
#[track_caller]
fn wait_for_status(addr: SocketAddr, event: &str, status: &str) -> Value {
    let path = format!("/v1/events/{event}/deliveries");
    let mut last = Value::Null;
    let found = try_wait_until(LATER, format!("{event} to be {status}"), || {
        // Kafka may have an event before the database does.
        let answer = Call::get(&path).to(addr);
        last = if answer.status == 404 { Value::Null } else { answer.expect(200)["data"][0].clone() };
        (last["status"] == status).then(|| last.clone())
    });
    found.unwrap_or_else(|timed_out| panic!("{timed_out}: {last}"))
}

/// The attempts of a delivery, the last first.
fn attempts(addr: SocketAddr, delivery: &Value) -> Vec<Value> {
    let path = format!("/v1/deliveries/{}/attempts", delivery["id"].as_str().unwrap());
    Call::get(&path).to(addr).expect(200)["data"].as_array().unwrap().clone()
}

/// A repeat must look like the first: same id, same bytes.
fn assert_repeats_are_equal(receiver: &Receiver) {
    let mut bodies = BTreeMap::new();
    for request in receiver.requests() {
        let first = bodies.entry(request.id().to_owned()).or_insert_with(|| request.body.clone());
        assert_eq!(*first, request.body, "{}", request.id());
    }
}

/// Tells what was measured, to whoever runs tests with `--nocapture`, as `make soak` does.
#[expect(clippy::print_stdout, reason = "it is a test's output")]
fn say(line: std::fmt::Arguments<'_>) {
    println!("{line}");
}

fn addrs(fleet: &[Tidegate]) -> Vec<SocketAddr> {
    fleet.iter().map(Tidegate::addr).collect()
}
