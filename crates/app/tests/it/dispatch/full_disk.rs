//! Bar 19: the disk under the database is full, or broken. What was accepted is there and arrives, what could not be written
//! was refused, the replica calls itself not ready, and it works again by itself.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use testkit::{
    disk::{Disk, has_own_mounts},
    need,
    postgres::{self, wire},
    receiver::Receiver,
    strace, wait_until,
};

use super::{LATER, deliveries, event_id, nothing_lost::assert_whole, replica, say, subscribe, wait_until_ended};
use crate::support::{Backend, Call, Response, size};

/// Of every other request.
const BATCH: usize = 20;

/// What was sent, and what was said to it.
struct Ledger {
    addr: SocketAddr,
    sent: usize,
    accepted: BTreeSet<usize>,
    refused: BTreeSet<usize>,
}

impl Ledger {
    fn new(addr: SocketAddr) -> Self {
        Ledger { addr, sent: 0, accepted: BTreeSet::new(), refused: BTreeSet::new() }
    }

    /// Sends one event, then a few together, and so on. True if none was refused.
    fn send(&mut self) -> bool {
        let (start, refused) = (self.sent, self.refused.len());
        let numbers = start..start + if start.is_multiple_of(BATCH + 1) { 1 } else { BATCH };
        self.sent = numbers.end;
        self.send_these(&numbers.collect::<Vec<usize>>());
        self.refused.len() == refused
    }

    /// Sends events that are accepted, so that their deliveries are under way.
    fn begin(&mut self) {
        assert!((0..20).all(|_| self.send()));
    }

    /// Sends until one is refused.
    fn send_until_refused(&mut self) {
        wait_until(LATER, "an event to be refused", || !self.send());
    }

    fn send_these(&mut self, numbers: &[usize]) {
        let answer = match numbers {
            [number] => Call::post("/v1/events", event(*number)).to(self.addr),
            _ => {
                let lines: String = numbers.iter().map(|number| format!("{}\n", event(*number))).collect();
                Call::new("POST", "/v1/events").body("application/x-ndjson", lines).to(self.addr)
            }
        };
        let is_accepted = is_accepted(answer, numbers.len());
        for (number, is_accepted) in numbers.iter().zip(is_accepted) {
            let (from, to) = match is_accepted {
                true => (&mut self.refused, &mut self.accepted),
                false => (&mut self.accepted, &mut self.refused),
            };
            from.remove(number);
            to.insert(*number);
        }
    }

    /// What was accepted arrives, and so does what was refused, once it is sent again.
    fn settle(&mut self, receiver: &Receiver) {
        self.wait_until_arrived(receiver);
        let again: Vec<usize> = self.refused.iter().rev().take(10 * BATCH).copied().collect();
        say(format_args!(
            "{} accepted and {} refused; {} sent again",
            self.accepted.len(),
            self.refused.len(),
            again.len()
        ));
        again.chunks(BATCH).for_each(|some| self.send_these(some));
        assert!(self.refused.is_disjoint(&again.into_iter().collect()), "{:?}", self.refused);
        self.wait_until_arrived(receiver);
        wait_until_ended(self.addr);
        let rows = deliveries(self.addr, "");
        assert!(rows.iter().all(|row| row["status"] == "delivered"));
        let known: BTreeSet<&str> = rows.iter().map(|row| row["event_id"].as_str().unwrap()).collect();
        let lost = self.accepted.iter().filter(|number| !known.contains(event_id(**number).as_str())).count();
        assert_eq!(lost, 0, "of {}", self.accepted.len());
        say(format_args!("{} twice", receiver.count() - receiver.distinct()));
    }

    fn wait_until_arrived(&self, receiver: &Receiver) {
        let accepted: BTreeSet<String> = self.accepted.iter().copied().map(event_id).collect();
        wait_until(LATER, "what was accepted to arrive", || accepted.is_subset(&ids(receiver)));
    }
}

/// Which of the events of a request were accepted; the others were refused as they should be.
#[track_caller]
fn is_accepted(answer: Response, count: usize) -> Vec<bool> {
    if answer.status != 202 {
        assert_eq!(answer.header("retry-after"), Some("1"), "{answer:?}");
        answer.expect_problem(503, "database_unavailable");
        return vec![false; count];
    }
    let answer = answer.json();
    let Some(results) = answer["results"].as_array() else { return vec![true] };
    let is_accepted = |result: &Value| {
        let error = &result["error"];
        assert!(error.is_null() || error["code"] == "database_unavailable", "{result}");
        error.is_null()
    };
    results.iter().map(is_accepted).collect()
}

/// Large enough to need room.
fn event(number: usize) -> Value {
    json!({"id": event_id(number), "type": "a.b", "data": "x".repeat(3000)})
}

fn ids(receiver: &Receiver) -> BTreeSet<String> {
    receiver.requests().iter().map(|request| request.id().to_owned()).collect()
}

fn is_ready(addr: SocketAddr) -> bool {
    let answer = Call::get("/health/ready").to(addr);
    assert!([200, 503].contains(&answer.status), "{answer:?}");
    answer.status == 200
}

/// It takes events again, and says so.
fn wait_until_it_works(ledger: &mut Ledger) -> Duration {
    let begun = Instant::now();
    wait_until(LATER, "readiness", || is_ready(ledger.addr));
    wait_until(LATER, "events to be accepted", || ledger.send());
    begun.elapsed()
}

/// Nobody is sent here, and whoever comes all the same is told.
fn assert_out_of_service(ledger: &mut Ledger) {
    wait_until(LATER, "readiness to end", || !is_ready(ledger.addr));
    for_a_while(|| {
        ledger.send();
        assert!(!is_ready(ledger.addr));
    });
    assert_eq!(Call::get("/health/live").to(ledger.addr).status, 200);
}

/// Longer than a lease, in the long form: what was called and could not be recorded comes back.
fn for_a_while(mut act: impl FnMut()) {
    let (begun, long) = (Instant::now(), Duration::from_secs(size(1, 8) as u64));
    wait_until(long * 2, "the end of the outage", || {
        act();
        begun.elapsed() >= long
    });
}

#[test]
fn a_full_disk_under_sqlite_loses_nothing() {
    if !need!(has_own_mounts()) {
        return;
    }
    let disk = need!(Disk::mount(size(64, 256)));
    let receiver = Receiver::start();
    let data = disk.folder().join("data");
    let tidegate = replica(&Backend::Sqlite).env("TIDEGATE__SERVER__DATA_DIR", data.to_str().unwrap()).start();
    subscribe(tidegate.addr(), &receiver.url("/"), json!({}));
    let mut ledger = Ledger::new(tidegate.addr());
    for time in 0..size(2, 20) as u64 {
        ledger.begin();
        // In the midst of its log, or of moving that into the file.
        disk.fill(time * 3_000_000 % 13_000_000);
        ledger.send_until_refused();
        // What SQLite gave back meanwhile.
        disk.fill(0);
        assert_out_of_service(&mut ledger);
        disk.make_room();
        say(format_args!("works again after {:?}", wait_until_it_works(&mut ledger)));
    }
    ledger.settle(&receiver);
    tidegate.stop().succeeded();
    assert_whole(disk.folder());
}

/// What a broken disk says to SQLite, and how.
const FAULTS: [(&str, &str); 3] = [("fdatasync", "EIO"), ("pwrite64", "EIO"), ("pwrite64", "ENOSPC")];

#[test]
fn a_broken_disk_under_sqlite_loses_nothing() {
    let receiver = Receiver::start();
    let tidegate = replica(&Backend::Sqlite).start();
    subscribe(tidegate.addr(), &receiver.url("/"), json!({}));
    let mut ledger = Ledger::new(tidegate.addr());
    for (call, error) in FAULTS {
        ledger.begin();
        let broken = need!(strace::fail(&[tidegate.pid()], call, &format!("error={error}")));
        ledger.send_until_refused();
        assert_out_of_service(&mut ledger);
        drop(broken);
        say(format_args!("{call}: {error}; works again after {:?}", wait_until_it_works(&mut ledger)));
        for nth in 2..2 + size(2, 30) {
            let flaky = need!(strace::fail(&[tidegate.pid()], call, &format!("error={error}:when={nth}+{nth}")));
            ledger.send_until_refused();
            drop(flaky);
            wait_until_it_works(&mut ledger);
        }
    }
    ledger.settle(&receiver);
    assert_whole(tidegate.stop().succeeded().folder());
}

#[test]
fn a_full_disk_under_postgres_loses_nothing() {
    if !need!(has_own_mounts()) {
        return;
    }
    let disk = need!(Disk::mount(256));
    let server = need!(postgres::Server::start_in(disk.folder(), &[]));
    let receiver = Receiver::start();
    let tidegate = replica(&Backend::Sqlite).env("DATABASE_URL", &server.url()).start();
    subscribe(tidegate.addr(), &receiver.url("/"), json!({}));
    let mut ledger = Ledger::new(tidegate.addr());
    for _ in 0..size(1, 10) {
        // No room for rows.
        ledger.begin();
        disk.fill(0);
        ledger.send_until_refused();
        disk.fill(0);
        for_a_while(|| {
            ledger.send();
        });
        disk.make_room();
        say(format_args!("works again after {:?}", wait_until_it_works(&mut ledger)));

        ledger.begin();
        // None for the log either: PostgreSQL ends, and does not come back until there is.
        disk.fill(0);
        wait_until(LATER, "postgres to end", || {
            drop(wire::query(server.port(), "postgres", "SELECT pg_switch_wal()"));
            ledger.send();
            !server.is_running()
        });
        assert_out_of_service(&mut ledger);
        disk.make_room();
        server.restart();
        say(format_args!("works again after {:?}", wait_until_it_works(&mut ledger)));
    }
    ledger.settle(&receiver);
    tidegate.stop().succeeded();
}

/// PostgreSQL takes a failed `fdatasync` of its log for its end, and comes back by itself.
#[test]
fn a_broken_disk_under_postgres_loses_nothing() {
    let server = need!(postgres::Server::start());
    let receiver = Receiver::start();
    let tidegate = replica(&Backend::Sqlite).env("DATABASE_URL", &server.url()).start();
    subscribe(tidegate.addr(), &receiver.url("/"), json!({}));
    let mut ledger = Ledger::new(tidegate.addr());
    for nth in 1..=size(2, 20) {
        ledger.begin();
        let broken = need!(strace::fail(&server.children(), "fdatasync", &format!("error=EIO:when={nth}")));
        ledger.send_until_refused();
        drop(broken);
        say(format_args!("works again after {:?}", wait_until_it_works(&mut ledger)));
    }
    ledger.settle(&receiver);
    tidegate.stop().succeeded();
}
