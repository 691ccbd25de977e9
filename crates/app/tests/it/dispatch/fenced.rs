//! Bar 10: a worker that was stopped past its lease finds that another has done its work, and changes nothing. And on
//! SQLite there is no second worker.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::{
    need,
    receiver::{Answer, Behaviour, Receiver},
    wait_until,
};

use super::{LATER, LEASE, attempts, replica, send, subscribe, wait_for_status, wait_for_subscriptions};
use crate::support::{Backend, Setup, Tidegate};

/// A worker that is stopped in the middle of a call that hangs for longer than its time, and another worker.
fn stopped_in_a_call(receiver: &Receiver, backend: &Backend) -> [Tidegate; 2] {
    let [zombie, heir] = [replica(backend).start(), replica(backend).start()];
    subscribe(zombie.addr(), &receiver.url("/"), json!({"timeout": "4s"}));
    wait_for_subscriptions(heir.addr(), 1);
    receiver.set(Answer::Hang);
    send(zombie.addr(), json!({"id": "once", "type": "a.b", "data": {}}));
    receiver.received_blocking(1, LATER);
    zombie.signal("STOP");
    [zombie, heir]
}

/// Lets it go on: its call fails at once and is written down, in vain.
fn wait_for_its_outcome(zombie: &Tidegate) {
    zombie.signal("CONT");
    wait_until(LATER, "the late outcome", || zombie.metric("tidegate_outcomes_fenced_total") == Some(1.0));
}

#[test]
fn a_worker_that_was_stopped_past_its_lease_changes_nothing() {
    let receiver = Receiver::start();
    let [zombie, heir] = stopped_in_a_call(&receiver, &Backend::Postgres(need!(testkit::postgres())));
    let stopped = Instant::now();
    receiver.set(Behaviour::default());
    let delivered = wait_for_status(heir.addr(), "once", "delivered");
    let took = stopped.elapsed();
    println!("delivered by the other {took:?} after the stop, lease {LEASE:?}");
    assert!(took < LEASE * 3, "{took:?}");
    wait_for_its_outcome(&zombie);
    let after = wait_for_status(heir.addr(), "once", "delivered");
    assert_eq!((&after["attempts"], &after["updated_at"]), (&json!(1), &delivered["updated_at"]));
    assert_eq!(attempts(heir.addr(), &after).len(), 1);
    assert_eq!(receiver.count(), 2);
}

/// The status alone would not tell the two apart: the row is being delivered, by another.
#[test]
fn a_worker_that_was_stopped_past_its_lease_ends_no_call_of_whoever_took_over() {
    let receiver = Receiver::start();
    let [zombie, heir] = stopped_in_a_call(&receiver, &Backend::Postgres(need!(testkit::postgres())));
    receiver.set(Behaviour { delay: Duration::from_secs(3), ..Behaviour::default() });
    receiver.received_blocking(2, LATER);
    wait_for_its_outcome(&zombie);
    let delivered = wait_for_status(heir.addr(), "once", "delivered");
    assert_eq!((&delivered["attempts"], attempts(heir.addr(), &delivered).len()), (&json!(1), 1));
    assert_eq!((heir.metric("tidegate_outcomes_fenced_total"), receiver.count()), (Some(0.0), 2));
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
