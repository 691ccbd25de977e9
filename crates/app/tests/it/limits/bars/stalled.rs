//! Redis is there and does not answer: stopped, slow, flapping, or without its scripts.

use std::time::Duration;

use testkit::{
    proxy::{FaultProxy, Faults},
    redis::Server,
};

use super::{
    SECOND,
    fleet::{Algorithm, BURST, DEADLINE, Fleet, Keys, OFFERED, REPLICAS, own_key},
    measure::{
        Checked, allowed, between, degraded, due_by_bucket, is_quick_machine, micros, most_took, p99, percentile, span,
        steady, wall_us,
    },
    seconds,
};
use crate::{limits::remaining, support::size};

/// Every call has its own key and has to ask Redis.
const ASKED: u32 = 1_500;

/// Bar 26, stopped. What was on its way is counted at most once, whatever becomes of it when Redis goes on.
#[test]
fn a_redis_that_hangs_costs_a_caller_the_deadline_and_no_call_is_charged_twice() {
    let redis = testkit::need!(Server::start());
    let fleet = Fleet::start(&redis.url(), Algorithm::Gcra);
    let (calls, [stopped_us, resumed_us]) = fleet.during(ASKED, Keys::Own, |pace| {
        pace.pass(2 * SECOND);
        redis.stop();
        let stopped_us = wall_us();
        pace.pass(seconds(2, 20));
        let resumed_us = wall_us();
        redis.resume();
        pace.pass(SECOND / 2);
        [stopped_us, resumed_us]
    });
    drop(fleet);
    // A replica that has not lost its trust in Redis looks at what Redis counted.
    let fresh = Fleet::patient(&redis.url(), Algorithm::Gcra);
    let under_way = between(&calls, stopped_us - 50_000, stopped_us + 150_000);
    let counted = |call: &Checked| 5 - remaining(fresh.replicas[0].addr(), &own_key(call.turn));
    let charges: Vec<u64> = under_way.iter().map(counted).collect();
    println!("hung: {} of {} calls around the stop were charged", charges.iter().sum::<u64>(), charges.len());
    assert!(charges.iter().all(|charged| *charged <= 1), "{charges:?}");
    if !is_quick_machine(&between(&calls, 0, stopped_us), 2 * DEADLINE) {
        return;
    }
    verify_hang(&calls, stopped_us, resumed_us);
}

/// Bar 26 with a network that takes 200 ms for a question and its answer.
#[test]
fn a_slow_line_to_redis_costs_a_caller_the_deadline_and_no_more() {
    let redis = testkit::need!(Server::start());
    let proxy = FaultProxy::start(("127.0.0.1", redis.port()));
    let fleet = Fleet::start(&format!("redis://{}/", proxy.addr()), Algorithm::Gcra);
    let (calls, [slow_us, ended_us]) = fleet.during(ASKED, Keys::Own, |pace| {
        pace.pass(2 * SECOND);
        proxy.set(Faults { latency: Duration::from_millis(100), ..Faults::default() });
        let slow_us = wall_us();
        pace.pass(seconds(2, 20));
        [slow_us, wall_us()]
    });
    if !is_quick_machine(&between(&calls, 0, slow_us), 2 * DEADLINE) {
        return;
    }
    verify_hang(&calls, slow_us, ended_us);
}

/// Nobody waits longer than the deadline and 5 ms, and soon nobody waits at all. The client, three replicas and whatever
/// else the machine does share two cores, so every call takes some time that is not Redis': it is what the same calls
/// of the same run took while Redis was well.
#[expect(clippy::print_stdout, reason = "the measured numbers are worth reading")]
fn verify_hang(calls: &[Checked], from_us: u64, to_us: u64) {
    let (well, hung) = (between(calls, 0, from_us), between(calls, from_us, to_us));
    let waited: Vec<Checked> = hung.iter().filter(|call| call.latency() >= DEADLINE / 2).copied().collect();
    let later = between(calls, from_us + 200_000 + micros(p99(&well)), to_us);
    println!(
        "hung: {} of {} calls waited, p99 {:?}; later p99 {:?}; with Redis p50 {:?} p99 {:?}",
        waited.len(),
        hung.len(),
        p99(&waited),
        p99(&later),
        percentile(&well, 50),
        p99(&well)
    );
    assert!(waited.len() >= REPLICAS, "it did hang");
    let five = Duration::from_millis(5);
    // A few calls wait: in `make test` a moment in which the machine stands still may hit a good part of them.
    let longest = percentile(&waited, size(50, 99));
    assert!(longest <= DEADLINE + five + p99(&well), "they waited {longest:?}");
    assert_eq!(degraded(&later), later.len(), "nobody asks a Redis that hangs");
    let patience = p99(&well).max(Duration::from_millis(size(25, 5) as u64));
    assert!(most_took(&later) <= patience, "{:?}: no queue is left", most_took(&later));
}

/// Bar 27: 200 ms up, 200 ms down.
#[test]
fn a_flapping_redis_changes_the_mode_rarely_and_the_limit_hardly() {
    let redis = testkit::need!(Server::start());
    let proxy = FaultProxy::start(("127.0.0.1", redis.port()));
    let fleet = Fleet::start(&format!("redis://{}/", proxy.addr()), Algorithm::Gcra);
    let part = Duration::from_millis(200);
    let lasting = seconds(12, 60);
    let (calls, ()) = fleet.during(OFFERED, Keys::Shared, |pace| {
        for _ in 0..lasting.as_millis() / (2 * part).as_millis() {
            proxy.set(Faults { black_hole: true, ..Faults::default() });
            pace.pass(part);
            proxy.heal();
            pace.pass(part);
        }
    });
    let (admitted, lasting, changes) = (allowed(&calls), span(&calls), fleet.mode_changes());
    println!("flapping: {admitted} admitted in {lasting:?}, mode changes {changes:?}");
    let most = (12 * micros(lasting)).div_ceil(micros(60 * SECOND));
    assert!(changes.iter().all(|changes| (1..=most).contains(&(*changes as u64))), "{changes:?}, {most} are right");
    assert!(admitted <= steady(1.1, lasting) + BURST, "{admitted} in {lasting:?}");
}

/// Bar 30: scripts that are forgotten again and again are sent again within the call, and nobody notices.
#[test]
fn forgotten_scripts_are_no_error() {
    let redis = testkit::need!(Server::start());
    let fleet = Fleet::patient(&redis.url(), Algorithm::TokenBucket);
    let (calls, ()) = fleet.during(OFFERED, Keys::Shared, |pace| {
        for _ in 0..seconds(3, 60).as_millis() / 100 {
            redis.cli(&["SCRIPT", "FLUSH"]);
            pace.pass(SECOND / 10);
        }
    });
    let (admitted, lasting) = (allowed(&calls), span(&calls));
    let right = due_by_bucket(&calls, 1).min(steady(1.0, lasting));
    println!("forgotten scripts: {admitted} admitted of {right} in {lasting:?}");
    assert!(admitted <= steady(1.0, lasting) + BURST, "{admitted} in {lasting:?}");
    if !is_quick_machine(&calls, 2 * DEADLINE) {
        return;
    }
    assert_eq!(degraded(&calls), 0, "Redis decided every call");
    assert!(admitted as f64 >= 0.99 * right as f64, "{admitted} of {right}");
}
