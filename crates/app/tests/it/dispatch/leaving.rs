//! SIGTERM under load: exit 0, calls in flight end, leases are given back unspent, and the next process does the rest.

use serde_json::json;
use std::time::Duration;
use testkit::{
    need,
    receiver::{Behaviour, Receiver},
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
