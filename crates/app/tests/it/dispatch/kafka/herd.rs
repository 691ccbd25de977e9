//! Bar 15: a destination that was down comes back, with all that waited for it due at once. Probes first and few, then its
//! limit from the first second on, until everything is delivered.

use std::time::Duration;

use serde_json::json;
use testkit::{
    need,
    receiver::{Answer, Behaviour, Receiver},
    wait_until,
};

use super::{
    assert_nothing_lost, deliveries,
    limits::{admissions, assert_kept, servers, workers},
    member, send_patiently,
};
use crate::{
    dispatch::{LATER, subscribe},
    support::{Backend, size},
};

/// Calls that a circuit which may close lets through in the whole fleet.
const PROBES: usize = 3;

#[test]
fn a_destination_that_comes_back_gets_its_backlog_at_its_limit() {
    let (rate, events) = (size(50, 500), size(400, 20_000));
    let (backend, redis) = need!(servers());
    let Backend::Kafka(postgres, _) = &backend else { unreachable!() };
    let receiver = Receiver::start();
    receiver.set(Answer::Status(500));
    let door = member(&backend, "api").start();
    let first = workers(&backend, &redis);
    let settings = json!({"rate_limit": rate, "retry_schedule": ["1h", "1h", "1h"]});
    let subscription = subscribe(door.addr(), &receiver.url("/"), settings);
    send_patiently(0..events, door.addr());
    wait_until(LATER * 2, "every delivery to wait", || {
        let waits = |status: &str| ["retrying", "throttled"].contains(&status);
        let all = deliveries(door.addr(), "");
        all.len() == events && all.iter().all(|one| waits(one["status"].as_str().unwrap()))
    });
    wait_until(LATER, "the last second's calls to be forgotten", || {
        redis.cli(&["KEYS", "*ratelimit*"]).trim().is_empty()
    });
    let in_vain = receiver.count();
    assert!(in_vain < events / 2, "{in_vain} calls to a destination that is down");

    // Ten minutes later: it is up, its circuit may be tried, and everything is due. Workers remember until when a circuit is
    // open, so these are new ones.
    first.into_iter().for_each(|worker| drop(worker.stop()));
    let answer_time = Duration::from_millis(300);
    receiver.set(Behaviour { delay: answer_time, ..Behaviour::default() });
    let circuit = redis.cli(&["KEYS", "*cb:*"]);
    let circuit = circuit.lines().find(|key| !redis.cli(&["HGET", key, "until"]).is_empty()).unwrap().to_owned();
    let generation = redis.cli(&["HGET", &circuit, "generation"]);
    postgres.sql("UPDATE deliveries SET due_at = now() WHERE status IN ('retrying', 'throttled')");
    redis.cli(&["HSET", &circuit, "until", "1"]);
    let _workers = workers(&backend, &redis);
    let admitted = admissions(&redis, &subscription, &receiver, in_vain + events);
    let repeated = assert_nothing_lost(door.addr(), &receiver, events);
    assert_eq!(repeated, in_vain, "once each, after those in vain");

    let arrivals = &receiver.requests()[in_vain..];
    let first = arrivals[0].at;
    let probes = arrivals.iter().take_while(|request| request.at - first < answer_time * 9 / 10).count();
    println!("{in_vain} in vain, {probes} probes (generation {generation})");
    assert!(probes <= PROBES, "{probes} probes at a time");
    assert_kept(&admitted, rate);
}
