//! Bar 5: PostgreSQL is killed, silent, and drops its connections under load. What was accepted is there and arrives; what
//! could not be written was refused; and it works again within five seconds after the database answers.

use std::{
    collections::BTreeSet,
    fs,
    net::SocketAddr,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use testkit::{
    need, postgres,
    proxy::{FaultProxy, Faults},
    receiver::Receiver,
    wait_until,
};

use super::{LATER, event_id, replica, say, send_until_accepted, statuses, subscribe, wait_until_ended};
use crate::support::{Backend, Call, size};

const BATCH: usize = 20;
/// Sent and not yet arrived, at most: enough to be busy with when the database is back.
const BACKLOG: usize = 500;
const IN_FLIGHT: usize = 32;
/// Past this the caller is told, whatever the database does: its own deadline and what a busy machine adds to it.
const TOLD: Duration = Duration::from_secs(15);

/// Sends events all the while; what was accepted arrives in the end.
fn under_load(addr: SocketAddr, receiver: &Receiver, faults: impl FnOnce()) {
    let (is_over, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let start = sent.fetch_add(BATCH, Ordering::Relaxed);
                wait_until(LATER, "the backlog to shrink", || start < receiver.count() + BACKLOG);
                send_until_accepted(start..start + BATCH, || addr);
            }
        });
        // Also if a fault is not borne well.
        let _over = Over(&is_over);
        faults();
    });
    wait_until_ended(addr);
    let arrived: BTreeSet<String> = receiver.requests().iter().map(|request| request.id().to_owned()).collect();
    let count = sent.load(Ordering::Relaxed);
    let lost: Vec<String> = (0..count).map(event_id).filter(|id| !arrived.contains(id)).collect();
    assert_eq!(lost, Vec::<String>::new());
    assert!(statuses(addr).keys().all(|status| status == "delivered"), "{:?}", statuses(addr));
    say(format_args!("{count} events, {} twice", receiver.count() - receiver.distinct()));
}

/// Ends the load when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// An event that cannot be written is refused, and in time.
fn assert_refused(addr: SocketAddr) {
    let asked = Instant::now();
    let refused = Call::post("/v1/events", json!({"type": "a.b", "data": {}})).to(addr);
    assert!(asked.elapsed() < TOLD, "{:?}", asked.elapsed());
    refused.expect_problem(503, "database_unavailable");
}

#[test]
fn a_database_that_dies_under_load_loses_nothing() {
    let server = need!(postgres::Server::start());
    let receiver = Receiver::start();
    let tidegate = replica(&Backend::Sqlite).env("DATABASE_URL", &server.url()).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({"max_concurrency": IN_FLIGHT}));
    let mut slowest = Duration::ZERO;
    under_load(addr, &receiver, || {
        for outage in 0..size(2, 10) {
            receiver.received_blocking(300 * (outage + 1), LATER);
            let folder = fs::read_link(format!("/proc/{}/cwd", server.pid().unwrap())).unwrap();
            server.kill();
            assert_refused(addr);
            wait_until_left(&folder);
            server.restart();
            slowest = slowest.max(until_it_works(addr, &receiver, &format!("after-{outage}")));
        }
    });
    println!("works again {slowest:?} after the database answers");
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    tidegate.stop().succeeded();
}

#[test]
fn a_database_that_is_silent_or_drops_its_connections_loses_nothing() {
    let server = need!(postgres::Server::start());
    let proxy = FaultProxy::start(("127.0.0.1", server.port()));
    let receiver = Receiver::start();
    let url = format!("postgres://postgres@{}/postgres", proxy.addr());
    let tidegate = replica(&Backend::Sqlite).env("DATABASE_URL", &url).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({"max_concurrency": IN_FLIGHT}));
    let mut slowest = Duration::ZERO;
    under_load(addr, &receiver, || {
        for outage in 0..size(1, 3) {
            receiver.received_blocking(300 * (outage + 1), LATER);
            let begun = Instant::now();
            proxy.set(Faults { black_hole: true, ..Faults::default() });
            assert_refused(addr);
            let long = Duration::from_secs(size(0, 30) as u64);
            wait_until(long * 2, "the end of the outage", || begun.elapsed() >= long);
            proxy.heal();
            slowest = slowest.max(until_it_works(addr, &receiver, &format!("after-{outage}")));
        }
        for _ in 0..size(20, 200) {
            let seen = receiver.count();
            server.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
            );
            let begun = Instant::now();
            receiver.received_blocking(seen + BATCH, LATER);
            slowest = slowest.max(begun.elapsed());
        }
    });
    println!("works again {slowest:?} after the database answers");
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    tidegate.stop().succeeded();
}

/// As after a server that is gone without a word, and whose address another one has.
#[test]
fn connections_that_never_answer_again_are_replaced() {
    let server = need!(postgres::Server::start());
    let receiver = Receiver::start();
    let tidegate = replica(&Backend::Sqlite).env("DATABASE_URL", &server.url()).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({}));
    send_until_accepted(0..200, || addr);
    wait_until_ended(addr);
    let all = server.sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'tidegate' AND state = 'idle'");
    let stuck: Vec<&str> = all.iter().filter_map(|row| row[0].as_deref()).collect();
    let signal = |name| assert!(Command::new("kill").args(["-s", name]).args(&stuck).status().unwrap().success());
    signal("STOP");
    let begun = Instant::now();
    send_until_accepted(200..220, || addr);
    receiver.received_blocking(220, LATER);
    println!("{} connections were stuck; works again after {:?}", stuck.len(), begun.elapsed());
    assert!(begun.elapsed() < 2 * TOLD, "{:?}", begun.elapsed());
    signal("CONT");
    wait_until_ended(addr);
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
