//! SIGTERM under load: exit 0, calls in flight end, leases are given back unspent, and the next process does the rest.

use std::time::Duration;

use serde_json::json;
use testkit::{
    need,
    receiver::{Answer, Behaviour, Receiver},
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{LATER, replica, send_all, send_until_accepted, statuses, subscribe, wait_until_ended};
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

/// It went on claiming what was due, gave it back due at once, and claimed it again, up to a hundred times each, until the drain's time was
/// over; leases that it held then ended by themselves.
#[test]
fn a_worker_with_a_backlog_claims_nothing_more() {
    const SUBSCRIPTIONS: usize = 20;
    const BACKLOG: usize = 30_000;
    let receiver = Receiver::start();
    let tidegate = replica(&Backend::Sqlite).start();
    let addr = tidegate.addr();
    for number in 0..SUBSCRIPTIONS {
        let wide = json!({"event_types": [format!("a.b{number}")], "rate_limit": 10_000, "max_concurrency": 1000});
        subscribe(addr, &receiver.url("/"), wide);
    }
    // Late enough for all of them to be in by then, also on a busy machine.
    let at = (OffsetDateTime::now_utc() + Duration::from_secs(20)).format(&Rfc3339).unwrap();
    let event = |n| json!({"type": format!("a.b{}", n % SUBSCRIPTIONS), "data": n, "deliver_at": at});
    for start in (0..BACKLOG).step_by(5000) {
        send_all(addr, (start..start + 5000).map(event));
    }
    receiver.received_blocking(1000, LATER);
    tidegate.terminate();
    tidegate.wait(SOON).succeeded();
    assert!(receiver.count() < BACKLOG, "it stopped too late to show anything");
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
