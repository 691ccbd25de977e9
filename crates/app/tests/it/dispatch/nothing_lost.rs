//! Bars 1 and 20: `kill -9` at random moments of a run at full speed. Nothing accepted is lost, everything ends, only what was
//! in flight at a kill may arrive twice, and SQLite's file is whole.

use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use serde_json::json;
use testkit::{need, receiver::Receiver};

use super::{
    LATER, addrs, assert_repeats_are_equal, replica, say, send, send_until_accepted, statuses, subscribe,
    wait_for_subscriptions, wait_until_all_ended, wait_until_ended,
};
use crate::support::{Backend, Setup, Tidegate, size};

const BATCH: usize = 50;
/// Calls of one process at a time, and so what may be in flight when it dies.
const IN_FLIGHT: usize = 32;
const SEED: u64 = 20_261_115;

fn events() -> usize {
    size(3000, 50_000)
}

/// Of several processes, or of the only one.
fn kills(backend: &Backend) -> usize {
    let long = if matches!(backend, Backend::Sqlite) { 100 } else { 20 };
    size(5, long)
}

/// Numbers that look random and are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

/// Kills a random process of the fleet whenever one more random number of requests has arrived, and starts it again.
fn kill_at_random(fleet: &mut Vec<Tidegate>, receiver: &Receiver, kills: usize) {
    let mut random = Random(SEED);
    let mut moments: Vec<usize> = (0..kills).map(|_| 100 + random.below(events() - 200)).collect();
    moments.sort_unstable();
    for moment in moments {
        receiver.received_blocking(moment, LATER);
        let victim = fleet.remove(random.below(fleet.len()));
        fleet.push(victim.kill().start());
    }
}

/// With Kafka, a worker that is started again gets its partitions back at once.
fn of_its_own(setup: Setup) -> Setup {
    setup.env("TIDEGATE__KAFKA__INSTANCE_ID", "auto")
}

fn run(backend: &Backend, size: usize) {
    let receiver = Receiver::start();
    let mut fleet: Vec<Tidegate> = (0..size).map(|_| of_its_own(replica(backend)).start()).collect();
    let all = addrs(&fleet);
    subscribe(all[0], &receiver.url("/"), json!({"max_concurrency": IN_FLIGHT}));
    all.iter().for_each(|addr| wait_for_subscriptions(*addr, 1));

    let turn = AtomicUsize::new(0);
    thread::scope(|scope| {
        for producer in 0..2 {
            let (all, turn) = (&all, &turn);
            scope.spawn(move || {
                for start in (producer * BATCH..events()).step_by(2 * BATCH) {
                    let addr = || all[turn.fetch_add(1, Ordering::Relaxed) % all.len()];
                    send_until_accepted(start..start + BATCH, addr);
                }
            });
        }
        kill_at_random(&mut fleet, &receiver, kills(backend));
    });
    let (events, kills) = (events(), kills(backend));
    wait_until_all_ended(all[0], events);
    let arrived = receiver.count();
    assert_eq!(receiver.distinct(), events, "lost");
    assert_eq!(statuses(all[0]), [("delivered".to_owned(), events)].into());
    assert!(arrived - events <= kills * IN_FLIGHT, "{} arrived twice", arrived - events);
    assert_repeats_are_equal(&receiver);
    say(format_args!("{} of {events} twice after {kills} kills", arrived - events));
    if matches!(backend, Backend::Sqlite) {
        assert_whole(fleet.remove(0).kill().folder());
    }
}

/// SQLite's file, as it was left.
pub(super) fn assert_whole(folder: &Path) {
    let file = rusqlite::Connection::open(folder.join("data/tidegate.db")).unwrap();
    let found: String = file.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(found, "ok");
}

#[test]
fn nothing_is_lost_when_the_process_is_killed_on_sqlite() {
    run(&Backend::Sqlite, 1);
}

#[test]
fn nothing_is_lost_when_workers_are_killed_on_postgres() {
    let postgres = need!(testkit::postgres());
    run(&Backend::Postgres(postgres), 3);
}

#[cfg(feature = "kafka")]
#[test]
fn nothing_is_lost_when_replicas_are_killed_on_kafka() {
    let backend = need!(Backend::kafka());
    run(&backend, 3);
}

/// A worker that had not heard of a subscription yet took its deliveries for orphans and cancelled them.
#[test]
fn a_subscription_made_on_one_replica_is_served_by_another_at_once() {
    let backend = Backend::Postgres(need!(testkit::postgres()));
    let receiver = Receiver::start();
    let (door, worker) = (replica(&backend).arg("--roles").arg("api").start(), replica(&backend).start());
    for number in 0..10 {
        let only = json!({"event_types": [format!("t{number}")]});
        subscribe(door.addr(), &receiver.url("/"), only);
        send(door.addr(), json!({"id": format!("e{number}"), "type": format!("t{number}"), "data": {}}));
    }
    wait_until_ended(worker.addr());
    assert_eq!(statuses(worker.addr()), [("delivered".to_owned(), 10)].into());
}
