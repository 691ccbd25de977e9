//! Bar 10: a worker that was stopped past its lease finds that another has done its work, and changes nothing. And on
//! SQLite there is no second worker.

use std::time::Instant;

use serde_json::json;
use testkit::{
    need,
    receiver::{Answer, Behaviour, Receiver},
};

use super::{LATER, LEASE, attempts, replica, send, subscribe, wait_for_status, wait_for_subscriptions};
use crate::support::{Backend, Setup};

#[test]
fn a_worker_that_was_stopped_past_its_lease_changes_nothing() {
    let backend = Backend::Postgres(need!(testkit::postgres()));
    let receiver = Receiver::start();
    let (zombie, heir) = (replica(&backend).start(), replica(&backend).start());
    subscribe(zombie.addr(), &receiver.url("/"), json!({"timeout": "4s"}));
    wait_for_subscriptions(heir.addr(), 1);

    receiver.set(Answer::Hang);
    send(zombie.addr(), json!({"id": "once", "type": "a.b", "data": {}}));
    receiver.received_blocking(1, LATER);
    let stopped = Instant::now();
    zombie.signal("STOP");
    receiver.set(Behaviour::default());
    let delivered = wait_for_status(heir.addr(), "once", "delivered");
    let took = stopped.elapsed();
    println!("delivered by the other {took:?} after the stop, lease {LEASE:?}");
    assert!(took < LEASE * 3, "{took:?}");

    zombie.signal("CONT");
    // Its call has hung for longer than its time, so it fails at once and is written down, in vain.
    let fenced = || zombie.metric("tidegate_outcomes_fenced_total");
    testkit::wait_until(LATER, "the late outcome", || fenced() == Some(1.0));
    let after = wait_for_status(heir.addr(), "once", "delivered");
    assert_eq!((&after["attempts"], &after["updated_at"]), (&json!(1), &delivered["updated_at"]));
    assert_eq!(attempts(heir.addr(), &after).len(), 1);
    assert_eq!(receiver.count(), 2);
}

#[test]
fn a_second_worker_on_the_same_sqlite_file_refuses_to_start() {
    let first = replica(&Backend::Sqlite).start();
    let second = Setup::serve().env("TIDEGATE__SERVER__DATA_DIR", first.data_dir().to_str().unwrap());
    let ended = second.env("TIDEGATE_MASTER_KEY", crate::support::MASTER_KEY).run();
    assert_eq!(ended.code, Some(1), "{}", ended.output);
    assert!(ended.output.contains("another worker delivers from"), "{}", ended.output);
    assert!(ended.output.contains("database.url"), "it says what to do: {}", ended.output);
    first.stop().succeeded();
}

#[test]
fn a_call_that_outlasts_its_lease_is_made_once() {
    let backend = Backend::Postgres(need!(testkit::postgres()));
    let receiver = Receiver::start();
    receiver.set(Behaviour { delay: LEASE + LEASE / 2, ..Behaviour::default() });
    let (here, there) = (replica(&backend).start(), replica(&backend).start());
    subscribe(here.addr(), &receiver.url("/"), json!({"timeout": "15s"}));
    wait_for_subscriptions(there.addr(), 1);
    send(here.addr(), json!({"id": "slow", "type": "a.b", "data": {}}));
    let delivered = wait_for_status(there.addr(), "slow", "delivered");
    assert_eq!((&delivered["attempts"], receiver.count()), (&json!(1), 1));
}
