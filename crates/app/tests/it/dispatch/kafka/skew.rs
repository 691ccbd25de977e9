//! Bars 10 and 12 with Kafka: a worker that was stopped past its lease changes nothing; and with clocks that are two minutes
//! off, nothing is sent early, nothing is lost, and a shared limit is kept.

use std::{
    collections::BTreeMap,
    path::Path,
    process::Command,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde_json::json;
use tempfile::TempDir;
use testkit::{
    Unavailable, need,
    postgres::Shared,
    receiver::{Answer, Behaviour, Receiver, Request},
    wait_until,
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{
    limits::{admissions, arrivals, assert_kept, most_within, servers, worker},
    member, send_patiently, wait_until_shared,
};
use crate::{
    dispatch::{
        LATER, LEASE, attempts, event_id, say, send, send_all, statuses, subscribe, wait_for_status,
        wait_until_all_ended,
    },
    support::{Backend, Setup, Tidegate, size},
};

const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
const REAL_WAITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/dispatch/kafka/real_waits.c");
/// How far clocks are off.
const OFF_S: i64 = 120;

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

/// Another wall clock for one process needs a library, and one more beside it.
struct FalseClock(TempDir);

impl FalseClock {
    fn make() -> Result<Self, Unavailable> {
        if !Path::new(FAKETIME).exists() {
            return Err(Unavailable::program("libfaketime", "it is not installed: apt-get install libfaketime"));
        }
        let clock = FalseClock(tempfile::tempdir().unwrap());
        let built = Command::new("cc").args(["-shared", "-fPIC", REAL_WAITS, "-o", &clock.real_waits()]).status();
        match built {
            Ok(status) if status.success() => Ok(clock),
            other => Err(Unavailable::program("cc", format!("{other:?}"))),
        }
    }

    fn real_waits(&self) -> String {
        self.0.path().join("real_waits.so").to_str().unwrap().to_owned()
    }

    /// A process whose clock is off.
    fn of(&self, setup: Setup, off_s: i64) -> Setup {
        setup
            .env("LD_PRELOAD", &format!("{}:{FAKETIME}", self.real_waits()))
            .env("FAKETIME", &format!("{off_s:+}s"))
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    }
}

/// From now on the database writes down when what waits may be sent.
fn note_dues(postgres: &Shared) {
    for statement in [
        "CREATE TABLE dues (place bigserial, event_uid text COLLATE \"C\", attempts integer, due timestamptz)",
        "CREATE FUNCTION note_due() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         INSERT INTO dues (event_uid, attempts, due) VALUES (NEW.event_uid, NEW.attempts, NEW.due_at); \
         RETURN NULL; END $$",
        "CREATE TRIGGER note_due AFTER INSERT OR UPDATE ON deliveries FOR EACH ROW \
         WHEN (NEW.due_at IS NOT NULL AND NEW.status <> 'processing') EXECUTE FUNCTION note_due()",
    ] {
        postgres.sql(statement);
    }
}

/// When each call that had to wait was due, by event and by how many calls there were before.
fn dues(postgres: &Shared) -> BTreeMap<(String, usize), SystemTime> {
    let rows = postgres.sql(
        "SELECT DISTINCT ON (e.id, d.attempts) e.id, d.attempts, (extract(epoch FROM d.due) * 1000)::bigint \
         FROM dues d JOIN events e ON e.uid = d.event_uid ORDER BY e.id, d.attempts, d.place DESC",
    );
    let due = |row: Vec<Option<String>>| {
        let [id, before, due_ms] = row.try_into().map(|row: [Option<String>; 3]| row.map(Option::unwrap)).unwrap();
        ((id, before.parse().unwrap()), UNIX_EPOCH + Duration::from_millis(due_ms.parse().unwrap()))
    };
    rows.into_iter().map(due).collect()
}

/// No call was made more than a second before it was due, or long after; returns how many had to wait.
fn assert_in_time(postgres: &Shared, requests: &[Request]) -> usize {
    let dues = dues(postgres);
    let (mut calls, mut waited) = (BTreeMap::<&str, usize>::new(), 0);
    for request in requests {
        let before = calls.entry(request.id()).or_default();
        if let Some(due) = dues.get(&(request.id().to_owned(), *before)) {
            let early = due.duration_since(request.at_wall).unwrap_or_default();
            assert!(early <= Duration::from_secs(1), "{} was sent {early:?} before its time", request.id());
            let late = request.at_wall.duration_since(*due).unwrap_or_default();
            assert!(late < LEASE * 4, "the time of {} came and nobody noticed for {late:?}", request.id());
            waited += 1;
        }
        *before += 1;
    }
    waited
}

/// How many of these calls were made by a clock that is behind, right and ahead, as they say themselves.
fn by_clock(requests: &[Request]) -> [usize; 3] {
    let mut calls = [0; 3];
    for request in requests {
        let sent_s: i64 = request.header("webhook-timestamp").parse().unwrap();
        let arrived_s = request.at_wall.duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
        calls[match sent_s - arrived_s {
            ..-60 => 0,
            -60..=60 => 1,
            61.. => 2,
        }] += 1;
    }
    calls
}

/// The most calls beyond the limit in any whole number of seconds.
fn excess(arrivals: &[Instant], rate: usize) -> usize {
    let over =
        |seconds: usize| most_within(arrivals, Duration::from_secs(seconds as u64)).saturating_sub(rate * seconds);
    (1..=arrivals.len() / rate).map(over).max().unwrap()
}

#[test]
fn workers_whose_clocks_are_off_send_nothing_early_lose_nothing_and_keep_a_shared_limit() {
    const RATE: usize = 100;
    let clock = need!(FalseClock::make());
    let (backend, redis) = need!(servers());
    let Backend::Kafka(postgres, _) = &backend else { unreachable!() };
    let door = member(&backend, "api").start();
    let addr = door.addr();
    note_dues(postgres);
    let mut workers = [0, OFF_S, -OFF_S].map(|off_s| match off_s {
        0 => worker(&backend, &redis).spawn(),
        off_s => clock.of(worker(&backend, &redis), off_s).spawn(),
    });
    workers.iter_mut().for_each(Tidegate::wait_until_ready);
    wait_until_shared(&workers.each_ref());

    // One destination has a limit, and half of its events come due while the others are being sent; the others fail once.
    let (limited, failing) = (Receiver::start(), Receiver::start());
    let only = json!({"event_types": ["limited"], "rate_limit": RATE});
    let subscription = subscribe(addr, &limited.url("/"), only);
    let paths = size(30, 300);
    for path in 0..paths {
        let only = json!({"event_types": [format!("failing.{path}")], "retry_schedule": ["3s", "1h"]});
        failing.set_path(&format!("/{path}"), Behaviour { fail_first: 1, ..Behaviour::default() });
        subscribe(addr, &failing.url(&format!("/{path}")), only);
    }
    let events = size(1000, 10_000);
    let later = (OffsetDateTime::now_utc() + Duration::from_secs(4)).format(&Rfc3339).unwrap();
    send_all(
        addr,
        (0..events).map(|number| {
            let mut event = json!({"id": event_id(number), "type": "limited", "data": {}});
            if number % 2 == 1 {
                event["deliver_at"] = json!(later);
            }
            event
        }),
    );
    send_all(
        addr,
        (0..paths).map(|path| json!({"id": format!("f{path}"), "type": format!("failing.{path}"), "data": {}})),
    );

    let admitted = admissions(&redis, &subscription, &limited, events);
    failing.received_blocking(2 * paths, LATER);
    wait_until_all_ended(addr, events + paths);
    assert_eq!(statuses(addr), [("delivered".to_owned(), events + paths)].into());
    assert_eq!((limited.distinct(), limited.count()), (events, events), "lost, or sent twice");
    assert_eq!((failing.distinct(), failing.count()), (paths, 2 * paths), "each failed once and then succeeded");

    let requests = [limited.requests(), failing.requests()].concat();
    let (waited, by_clock) = (assert_in_time(postgres, &requests), by_clock(&requests));
    let arrivals = arrivals(&limited);
    let (most, over) = (most_within(&arrivals, Duration::from_secs(1)), excess(&arrivals, RATE));
    say(format_args!(
        "{waited} of {} calls had to wait; {by_clock:?} by clocks behind, right and ahead; at most {most} in a second, {over} over \
         the limit in any number of seconds",
        requests.len()
    ));
    assert!(waited >= events / 2 + paths, "{waited}");
    assert!(by_clock.iter().all(|calls| *calls >= requests.len() / 20), "{by_clock:?}");
    assert_kept(&admitted, RATE);
    // Beside other tests a call may be late by as much as a moment's calls.
    assert!(
        most <= size(20, 11) * RATE / 10 && over <= size(events / 10, events / 100),
        "{most} in a second, {over} over"
    );
}
