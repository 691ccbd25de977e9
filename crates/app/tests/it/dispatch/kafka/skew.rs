//! Bars 10 and 12 with Kafka: a worker that was stopped past its lease changes nothing, and one whose clock is two minutes
//! off delivers no earlier and loses nothing.

use std::{collections::BTreeMap, path::Path, time::Duration};

use serde_json::json;
use testkit::{
    Unavailable, need,
    receiver::{Answer, Behaviour, Receiver},
    wait_until,
};

use super::{assert_nothing_lost, member, send_patiently, wait_until_shared};
use crate::{
    dispatch::{LATER, LEASE, attempts, event_id, replica, send, subscribe, wait_for_status},
    support::{Backend, Setup, size},
};

const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

#[test]
fn a_worker_stopped_past_its_lease_changes_nothing_on_kafka() {
    let backend = need!(Backend::kafka());
    let receiver = Receiver::start();
    let (door, zombie) = (member(&backend, "api").start(), member(&backend, "worker").start());
    subscribe(door.addr(), &receiver.url("/"), json!({"timeout": "4s"}));
    receiver.set(Answer::Hang);
    send(door.addr(), json!({"id": "once", "type": "a.b", "data": {}}));
    receiver.received_blocking(1, LATER);
    zombie.signal("STOP");
    receiver.set(Behaviour::default());
    let heir = member(&backend, "worker").start();
    let delivered = wait_for_status(door.addr(), "once", "delivered");
    zombie.signal("CONT");
    wait_until(LATER, "the late outcome", || zombie.metric("tidegate_outcomes_fenced_total") == Some(1.0));
    let after = wait_for_status(door.addr(), "once", "delivered");
    assert_eq!((&after["attempts"], &after["updated_at"]), (&json!(1), &delivered["updated_at"]));
    assert_eq!((attempts(door.addr(), &after).len(), receiver.count()), (1, 2));
    // Both go on as members of the group.
    send_patiently(0..20, door.addr());
    wait_until(LATER * 2, "both to work", || receiver.distinct() == 21);
    drop((zombie, heir));
}

/// Another wall clock for one process needs a library.
fn faketime() -> Result<(), Unavailable> {
    let reason = "it is not installed: apt-get install libfaketime";
    if Path::new(FAKETIME).exists() { Ok(()) } else { Err(Unavailable::program("libfaketime", reason)) }
}

/// A worker whose clock is off.
fn skewed(setup: Setup, seconds: &str) -> Setup {
    setup.env("LD_PRELOAD", FAKETIME).env("FAKETIME", seconds).env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
}

#[test]
fn a_clock_that_is_off_delivers_nothing_early_and_loses_nothing() {
    need!(faketime());
    let backend = need!(Backend::kafka());
    let receiver = Receiver::start();
    let (door, reader) = (member(&backend, "api").start(), member(&backend, "worker").start());
    wait_until_shared(&[&reader]);
    // The two that are off deliver from the database alone: under libfaketime, Kafka's client does not wait as it should.
    let Backend::Kafka(postgres, _) = &backend else { unreachable!() };
    let worker = || replica(&Backend::Sqlite).env("DATABASE_URL", &postgres.url()).arg("--roles").arg("worker");
    let _off = [skewed(worker(), "+120s").start(), skewed(worker(), "-120s").start()];
    let wait = Duration::from_secs(3);
    let paths = size(30, 300);
    for path in 0..paths {
        let (only, path) = (format!("t{path}"), format!("/{path}"));
        receiver.set_path(&path, Behaviour { fail_first: 1, ..Behaviour::default() });
        subscribe(door.addr(), &receiver.url(&path), json!({"event_types": [only], "retry_schedule": ["3s", "1h"]}));
    }
    for number in 0..paths {
        send(door.addr(), json!({"id": event_id(number), "type": format!("t{number}"), "data": {}}));
    }
    assert_eq!(assert_nothing_lost(door.addr(), &receiver, paths), paths, "each failed once and then succeeded");
    let mut first = BTreeMap::new();
    for request in receiver.requests() {
        let before = *first.entry(request.id().to_owned()).or_insert(request.at);
        let waited = request.at - before;
        assert!(before == request.at || waited > wait - Duration::from_secs(1), "repeated after {waited:?}");
        assert!(waited < wait + LEASE * 4, "{waited:?}: its time came and nobody noticed");
    }
}
