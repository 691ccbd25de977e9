//! Bars 7 and 8: workers come and go, and partitions with them. Nothing is lost, hardly anything arrives twice, and a worker
//! with a name of its own is back without anyone noticing.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use testkit::{need, receiver::Receiver, wait_until};

use super::{Load, assert_nothing_lost, member, wait_until_shared, ways};
use crate::{
    dispatch::{LATER, send_all, subscribe},
    support::{Backend, Tidegate, size},
};

/// A guest comes and goes, again and again. Returns how many events there were, and how many arrived twice.
fn storm(backend: &Backend, protocol: &str, rounds: usize) -> (usize, usize) {
    let receiver = Receiver::start();
    let setup = |roles| member(backend, roles).env("TIDEGATE__KAFKA__GROUP_PROTOCOL", protocol);
    let (door, steady) = (setup("api").start(), setup("worker").start());
    subscribe(door.addr(), &receiver.url("/"), json!({}));
    let load = Load::new(10, 20);
    thread::scope(|scope| {
        let _load = load.begin(scope, door.addr());
        for _ in 0..rounds {
            let guest = setup("worker").start();
            wait_until(LATER, "the guest to get partitions", || guest.metric("tidegate_kafka_partitions") > Some(0.0));
            guest.stop().succeeded();
        }
    });
    let twice = assert_nothing_lost(door.addr(), &receiver, load.sent());
    assert!(twice * 100 <= load.sent(), "{twice} of {} twice", load.sent());
    assert!(steady.metric("tidegate_kafka_rebalances_total") > Some(0.0));
    (load.sent(), twice)
}

#[test]
fn workers_that_come_and_go_lose_nothing() {
    let backend = need!(Backend::kafka());
    println!("events and how many arrived twice: {:?}", storm(&backend, "classic", size(3, 100)));
}

#[test]
fn workers_that_come_and_go_lose_nothing_by_the_new_protocol() {
    let backend = need!(Backend::kafka());
    println!("events and how many arrived twice: {:?}", storm(&backend, "consumer", size(3, 100)));
}

#[test]
fn a_named_worker_that_restarts_gets_its_partitions_back_without_a_rebalance() {
    let backend = need!(Backend::kafka());
    let receiver = Receiver::start();
    // Longer than a restart takes on any machine.
    let setup = || member(&backend, "worker").env("TIDEGATE__KAFKA__SESSION_TIMEOUT", "30s");
    let worker = || setup().env("TIDEGATE__KAFKA__INSTANCE_ID", "auto").start();
    let door = member(&backend, "api").start();
    subscribe(door.addr(), &receiver.url("/"), json!({}));
    let mut workers = vec![worker(), worker(), worker()];
    wait_until_shared(&workers.iter().collect::<Vec<_>>());
    let load = Load::new(10, 20);
    let changes = |worker: &Tidegate| worker.metric("tidegate_kafka_rebalances_total");
    thread::scope(|scope| {
        let _load = load.begin(scope, door.addr());
        for turn in 0..5 {
            let seen = receiver.count();
            let leaver = workers.remove(0);
            let before: Vec<Option<f64>> = workers.iter().map(changes).collect();
            // Each of the three in an orderly way, then two by force.
            let (is_orderly, begun) = (turn < 3, Instant::now());
            let again = if is_orderly { leaver.stop().succeeded().again() } else { leaver.kill() };
            workers.push(again.start());
            let away = begun.elapsed();
            wait_until_shared(&workers.iter().collect::<Vec<_>>());
            let after: Vec<Option<f64>> = workers[..2].iter().map(changes).collect();
            assert_eq!(before, after, "a rebalance after restart {turn}");
            let back = receiver.count();
            wait_until(Duration::from_secs(30), "deliveries", || receiver.count() >= back + 50);
            let longest = *ways(&receiver.requests()[seen..]).last().unwrap();
            println!("away for {away:?}; no event took longer than {longest:?}");
            // A lease that is not given back costs five seconds, a busy machine less.
            assert!(!is_orderly || longest < away + Duration::from_secs(3), "{longest:?}, away for {away:?}");
        }
    });
    let twice = assert_nothing_lost(door.addr(), &receiver, load.sent());
    println!("{twice} of {} twice after five restarts", load.sent());
}

/// Batches of one partition are written two at a time, but not where a line has to be kept. Ids fall, so that nothing is in order that was
/// sorted by them.
#[test]
fn order_is_kept_for_each_key_through_kafka() {
    let backend = need!(Backend::kafka());
    let receiver = Receiver::start();
    let fleet = [member(&backend, "api,worker").start(), member(&backend, "worker").start()];
    wait_until_shared(&fleet.iter().collect::<Vec<_>>());
    let addr = fleet[0].addr();
    subscribe(addr, &receiver.url("/"), json!({"ordering": "key"}));
    let (keys, each) = (8, size(40, 1000));
    let events = |range: std::ops::Range<usize>| {
        range.flat_map(|number| (0..keys).map(move |key| (key, each - number))).map(|(key, number)| {
            json!({"id": format!("{key}-{number:04}"), "type": "a.b", "data": {}, "ordering_key": format!("k{key}")})
        })
    };
    for start in (0..each).step_by(10) {
        send_all(addr, events(start..start + 10));
    }
    assert_eq!(assert_nothing_lost(addr, &receiver, keys * each), 0);
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for request in receiver.requests() {
        let (key, number) = request.id().split_once('-').unwrap();
        let last = seen.insert(key.to_owned(), number.to_owned());
        assert!(last.is_none_or(|last| last.as_str() > number), "{} came too late", request.id());
    }
}
