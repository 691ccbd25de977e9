//! Bar 5, short form: PostgreSQL is killed and started again under load. What was accepted is there and arrives; what could
//! not be written was refused; and it works again within five seconds after the database answers.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use testkit::{need, postgres, receiver::Receiver, wait_until};

use super::{LATER, event_id, replica, send_until_accepted, statuses, subscribe, wait_until_ended};
use crate::support::{Backend, Call};

const BATCH: usize = 20;
/// Sent and not yet arrived, at most: enough to be busy with when the database is back.
const BACKLOG: usize = 500;
const IN_FLIGHT: usize = 32;
const OUTAGES: usize = 2;

#[test]
fn a_database_that_dies_under_load_loses_nothing() {
    let server = need!(postgres::Server::start());
    let receiver = Receiver::start();
    let tidegate = replica(&Backend::Sqlite).env("DATABASE_URL", &server.url()).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({"max_concurrency": IN_FLIGHT}));

    let (is_over, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut slowest = Duration::ZERO;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let start = sent.fetch_add(BATCH, Ordering::Relaxed);
                wait_until(LATER, "the backlog to shrink", || start < receiver.count() + BACKLOG);
                send_until_accepted(start..start + BATCH, || addr);
            }
        });
        for outage in 0..OUTAGES {
            receiver.received_blocking(300 * (outage + 1), LATER);
            let folder = fs::read_link(format!("/proc/{}/cwd", server.pid().unwrap())).unwrap();
            server.kill();
            let asked = Instant::now();
            let refused = Call::post("/v1/events", json!({"type": "a.b", "data": {}})).to(addr);
            assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
            refused.expect_problem(503, "database_unavailable");
            wait_until_left(&folder);
            server.restart();
            slowest = slowest.max(until_it_works(addr, &receiver, &format!("after-{outage}")));
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

/// Until the last of the killed server's processes is gone: as long as one holds its memory, the next does not start.
fn wait_until_left(folder: &Path) {
    let works_there = |process: fs::DirEntry| fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd == folder);
    wait_until(LATER, "the killed server to be gone", || {
        !fs::read_dir("/proc").unwrap().filter_map(Result::ok).any(works_there)
    });
}

/// How long it takes until an event is accepted and deliveries go on: more than were in flight, so outcomes are written.
fn until_it_works(addr: SocketAddr, receiver: &Receiver, id: &str) -> Duration {
    let begun = Instant::now();
    let arrived = receiver.count();
    let event = json!({"id": id, "type": "a.b", "data": {}});
    wait_until(LATER, "an event to be accepted", || Call::post("/v1/events", event.clone()).to(addr).status == 202);
    receiver.received_blocking(arrived + 2 * IN_FLIGHT, LATER);
    begun.elapsed()
}
