//! Bar 2: the process dies before and after each step of an event's way. Nothing accepted is lost, nothing is twice but the
//! calls under way, and every other call is one attempt in the records.

use std::{collections::BTreeMap, thread};

use serde_json::{Value, json};
use testkit::{
    need,
    receiver::{Behaviour, Receiver},
    wait_until,
};

use super::{
    LATER, assert_repeats_are_equal, attempts, deliveries, event_id, replica, say, statuses, subscribe,
    wait_until_all_ended,
};
use crate::support::{Backend, Call, size};

const POINTS: [&str; 10] = [
    "persist.before",
    "persist.after",
    "ack.before",
    "ack.after",
    "claim.before",
    "claim.after",
    "send.before",
    "send.after",
    "record.before",
    "record.after",
];
#[cfg(feature = "kafka")]
const POINTS_OF_KAFKA: [&str; 4] = ["publish.before", "publish.after", "commit.before", "commit.after"];
const BATCH: usize = 5;
const BATCHES: usize = 6;
const EVENTS: usize = BATCH * BATCHES;
/// Calls at a time to each of the two subscriptions, and so what may be under way when the process dies.
const IN_FLIGHT: usize = 3;
/// Calls of the second subscription that fail: fewer than open its circuit.
const FAILURES: u32 = 3;

/// An event that one subscription gets as it comes, and the other in a line, for which it has to be claimed.
fn event(number: usize) -> Value {
    json!({"id": event_id(number), "type": "a.b", "data": number, "ordering_key": format!("k{}", number % 7)})
}

/// Sends a batch again and again until it is accepted.
fn send_batch(addr: std::net::SocketAddr, batch: usize) {
    let body: String = (0..BATCH).map(|number| format!("{}\n", event(batch * BATCH + number))).collect();
    wait_until(LATER, "a batch to be accepted", || {
        let call = Call::new("POST", "/v1/events").body("application/x-ndjson", body.clone());
        call.try_to(addr).is_ok_and(|answer| answer.status == 202 && answer.json()["accepted"] == BATCH)
    });
}

/// One death at one point. The second of the two subscriptions keeps lines, and fails at first.
fn die_at(backend: &Backend, point: &str, nth: usize) {
    let receiver = Receiver::start();
    receiver.set_path("/line", Behaviour { fail_first: FAILURES, ..Behaviour::default() });
    let first = replica(backend).env("TIDEGATE__KAFKA__INSTANCE_ID", "auto").start();
    let addr = first.addr();
    subscribe(addr, &receiver.url("/plain"), json!({"max_concurrency": IN_FLIGHT}));
    let line = json!({"max_concurrency": IN_FLIGHT, "ordering": "key", "retry_schedule": ["100ms", "100ms", "100ms"]});
    subscribe(addr, &receiver.url("/line"), line);
    let setup = first.stop().succeeded().again().env("TIDEGATE_CRASH_AT", &format!("{point}:{nth}"));

    let mortal = setup.spawn();
    let again = thread::scope(|scope| {
        if point == "ack.after" {
            (0..nth).for_each(|batch| send_batch(addr, batch));
            let again = mortal.kill();
            scope.spawn(move || (nth..BATCHES).for_each(|batch| send_batch(addr, batch)));
            return again.env("TIDEGATE_CRASH_AT", "").start();
        }
        scope.spawn(move || (0..BATCHES).for_each(|batch| send_batch(addr, batch)));
        mortal.wait_for_crash(LATER).env("TIDEGATE_CRASH_AT", "").start()
    });
    wait_until_all_ended(addr, 2 * EVENTS);
    assert_eq!(statuses(addr), [("delivered".to_owned(), 2 * EVENTS)].into(), "{point}:{nth}");
    assert_counted_once(addr, &receiver, &format!("{point}:{nth}"));
    assert_repeats_are_equal(&receiver);
    drop(again);
}

/// Every call but those under way is one attempt; nothing that was not called is an attempt.
fn assert_counted_once(addr: std::net::SocketAddr, receiver: &Receiver, point: &str) {
    let mut calls: BTreeMap<(String, String), usize> = BTreeMap::new();
    for request in receiver.requests() {
        *calls.entry((request.path.clone(), request.id().to_owned())).or_default() += 1;
    }
    assert_eq!(calls.len(), 2 * EVENTS, "lost, {point}");
    let mut unrecorded: BTreeMap<&str, usize> = BTreeMap::new();
    let paths = paths(addr);
    for delivery in deliveries(addr, "") {
        let path = paths[delivery["subscription_id"].as_str().unwrap()];
        let called = calls[&(path.to_owned(), delivery["event_id"].as_str().unwrap().to_owned())];
        let rows = attempts(addr, &delivery);
        let numbers: Vec<u64> = rows.iter().rev().map(|row| row["number"].as_u64().unwrap()).collect();
        let expected: Vec<u64> = (1..=delivery["attempts"].as_u64().unwrap()).collect();
        assert_eq!(numbers, expected, "{point}: {delivery}");
        assert!(rows.len() <= called, "{point}: {} attempts of {called} calls: {delivery}", rows.len());
        *unrecorded.entry(path).or_default() += called - rows.len();
    }
    say(format_args!("{point}: calls without a record: {unrecorded:?}"));
    assert!(unrecorded.values().all(|count| *count <= IN_FLIGHT), "{point}: {unrecorded:?}");
}

/// The path of each subscription.
fn paths(addr: std::net::SocketAddr) -> BTreeMap<String, &'static str> {
    let all = Call::get("/v1/subscriptions").to(addr).expect(200);
    let path = |one: &Value| if one["url"].as_str().unwrap().ends_with("/line") { "/line" } else { "/plain" };
    all["data"].as_array().unwrap().iter().map(|one| (one["id"].as_str().unwrap().to_owned(), path(one))).collect()
}

/// Each point, several at a time: most of the time they wait for a lease to end. Those of the steps `once` may be reached
/// with all batches together.
fn die_at_each(points: &[&'static str], once: &[&str], width: usize, backend: impl Fn() -> Backend + Sync) {
    // A point is reached this often at least.
    let reached = |point: &str| if once.iter().any(|step| point.starts_with(step)) { 1 } else { BATCHES - 1 };
    let deaths = |point: &str| size(1, reached(point));
    let plans: Vec<(&str, usize)> =
        points.iter().flat_map(|point| (1..=deaths(point)).map(move |nth| (*point, nth))).collect();
    for some in plans.chunks(width) {
        thread::scope(|scope| {
            for (point, nth) in some {
                let backend = &backend;
                // The first of all is often a special case, the second is not.
                let nth = size(2.min(reached(point)), *nth);
                scope.spawn(move || die_at(&backend(), point, nth));
            }
        });
    }
}

#[test]
fn a_death_at_any_point_loses_nothing_on_sqlite() {
    die_at_each(&POINTS, &[], 3, || Backend::Sqlite);
}

#[test]
fn a_death_at_any_point_loses_nothing_on_postgres() {
    need!(testkit::postgres());
    die_at_each(&POINTS, &[], 4, || Backend::Postgres(testkit::postgres().unwrap()));
}

#[cfg(feature = "kafka")]
#[test]
fn a_death_at_any_point_loses_nothing_on_kafka() {
    need!(Backend::kafka());
    let points = [&POINTS[..], &POINTS_OF_KAFKA[..]].concat();
    // A worker that gets its partitions late finds all batches in the topic, and writes them at once.
    die_at_each(&points, &["persist", "commit"], 4, || Backend::kafka().unwrap());
}
