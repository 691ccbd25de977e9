//! Bar 5, short form: PostgreSQL is killed and started again under load. What was accepted is there and arrives; what could
//! not be written was refused; and it works again within five seconds after the database answers.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use testkit::{need, postgres, receiver::Receiver, wait_until};

use super::{LATER, event_id, replica, send_until_accepted, statuses, subscribe, wait_for_status, wait_until_ended};
use crate::support::{Backend, Call};

const BATCH: usize = 20;
const OUTAGES: usize = 2;

#[test]
fn a_database_that_dies_under_load_loses_nothing() {
    let server = need!(postgres::Server::start());
    let receiver = Receiver::start();
    let tidegate = replica(&Backend::Sqlite).env("DATABASE_URL", &server.url()).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({"max_concurrency": 32}));

    let (is_over, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut slowest = Duration::ZERO;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let start = sent.fetch_add(BATCH, Ordering::Relaxed);
                send_until_accepted(start..start + BATCH, || addr);
            }
        });
        for outage in 0..OUTAGES {
            receiver.received_blocking(300 * (outage + 1), LATER);
            server.kill();
            let asked = Instant::now();
            let refused = Call::post("/v1/events", json!({"type": "a.b", "data": {}})).to(addr);
            assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
            refused.expect_problem(503, "database_unavailable");
            server.restart();
            slowest = slowest.max(until_delivered(addr, &format!("after-{outage}")));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    println!("works again {slowest:?} after the database answers");
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");

    wait_until_ended(addr);
    let count = sent.load(Ordering::Relaxed);
    let arrived: std::collections::BTreeSet<String> =
        receiver.requests().iter().map(|request| request.id().to_owned()).collect();
    let lost: Vec<String> = (0..count).map(event_id).filter(|id| !arrived.contains(id)).collect();
    assert_eq!(lost, Vec::<String>::new());
    assert!(statuses(addr).keys().all(|status| status == "delivered"), "{:?}", statuses(addr));
    tidegate.stop().succeeded();
}

/// How long it takes until an event is accepted and delivered.
fn until_delivered(addr: std::net::SocketAddr, id: &str) -> Duration {
    let begun = Instant::now();
    let event = json!({"id": id, "type": "a.b", "data": {}});
    wait_until(LATER, "an event to be accepted", || Call::post("/v1/events", event.clone()).to(addr).status == 202);
    wait_for_status(addr, id, "delivered");
    begun.elapsed()
}
