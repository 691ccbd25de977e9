//! SIGTERM under load: exit 0, calls in flight end, leases are given back unspent, and the next process does the rest.

use serde_json::json;
use std::time::Duration;
use testkit::{
    need,
    receiver::{Answer, Behaviour, Receiver},
};

use super::{LATER, replica, send_until_accepted, statuses, subscribe, wait_until_ended};
use crate::support::{Backend, SOON};

const EVENTS: usize = 1500;

/// `held` counts what the process left leased.
fn run(backend: &Backend, held: impl Fn() -> String) {
    let receiver = Receiver::start();
    receiver.set(Behaviour { delay: Duration::from_millis(50), ..Behaviour::default() });
    let tidegate = replica(backend).env("TIDEGATE__DISPATCH__LEASE", "60s").start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({"max_concurrency": 32}));
    send_until_accepted(0..EVENTS, || addr);
    receiver.received_blocking(200, LATER);
    tidegate.terminate();
    let ended = tidegate.wait(SOON).succeeded();
    assert!(receiver.count() < EVENTS, "it stopped too late to show anything");
    assert_eq!(held(), "0", "still leased");

    let tidegate = ended.again().start();
    wait_until_ended(addr);
    assert_eq!(statuses(addr), [("delivered".to_owned(), EVENTS)].into());
    assert_eq!((receiver.distinct(), receiver.count()), (EVENTS, EVENTS), "nothing lost, nothing twice");
    tidegate.stop().succeeded();
}

/// One call hangs for longer than the process waits, and others wait behind it: all of them are somebody else's at once.
#[test]
fn what_a_hanging_call_held_up_is_given_back_at_the_end_of_the_drain() {
    let backend = Backend::Postgres(need!(testkit::postgres()));
    let receiver = Receiver::start();
    receiver.set(Answer::Hang);
    let leaver = replica(&backend).env("TIDEGATE__DISPATCH__LEASE", "60s").env("DRAIN_TIMEOUT", "2s").start();
    subscribe(leaver.addr(), &receiver.url("/"), json!({"max_concurrency": 1, "timeout": "30s"}));
    send_until_accepted(0..4, || leaver.addr());
    receiver.received_blocking(1, LATER);
    receiver.set(Behaviour::default());
    let heir = replica(&backend).start();
    leaver.terminate();
    // Those behind it need not wait for the end of the drain, were it not for the one place that the call holds.
    leaver.wait(SOON);
    wait_until_ended(heir.addr());
    assert_eq!(statuses(heir.addr()), [("delivered".to_owned(), 4)].into());
}

#[test]
fn sigterm_under_load_loses_nothing_on_sqlite() {
    // What was left leased is freed at the start anyway; on PostgreSQL it can be counted.
    run(&Backend::Sqlite, || "0".to_owned());
}

#[test]
fn sigterm_under_load_gives_leases_back_unspent_on_postgres() {
    let postgres = need!(testkit::postgres());
    let server = postgres.clone();
    run(&Backend::Postgres(postgres), || {
        let held =
            "SELECT count(*) FROM deliveries WHERE status = 'processing' OR (status <> 'delivered' AND attempts > 0)";
        server.sql(held)[0][0].clone().unwrap()
    });
}
