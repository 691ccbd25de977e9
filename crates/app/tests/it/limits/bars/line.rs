//! Bar 33: the line to Redis breaks and comes back.

use std::time::Duration;

use testkit::{
    proxy::{FaultProxy, Faults},
    redis::Server,
};

use super::{
    SECOND,
    fleet::{Algorithm, DEADLINE, Fleet, Keys, OFFERED, REPLICAS},
    measure::{Checked, between, degraded, is_quick_machine, micros, p99, since, wall_us},
    seconds,
};
use crate::support::size;

/// Times are compared in parts of this length.
const PART: Duration = Duration::from_millis(250);

#[test]
fn a_lost_line_is_dialled_at_most_twice_a_second_by_each_replica_and_returns_without_a_storm() {
    let redis = testkit::need!(Server::start());
    let proxies: [FaultProxy; REPLICAS] = std::array::from_fn(|_| FaultProxy::start(("127.0.0.1", redis.port())));
    let urls = proxies.each_ref().map(|proxy| format!("redis://{}/", proxy.addr()));
    // On a machine that is slower than the deadline the replicas do not come back to trust Redis.
    let deadline = 10 * DEADLINE;
    let fleet = Fleet::each_on(&urls.each_ref().map(String::as_str), Algorithm::Gcra, deadline);
    if !is_quick_machine(&fleet.load(OFFERED, SECOND), deadline / 2) {
        return;
    }
    let accepted = || proxies.each_ref().map(FaultProxy::accepted);
    let (calls, (cut_us, back_us, dials)) = fleet.during(OFFERED, Keys::Shared, |pace| {
        pace.pass(2 * SECOND);
        let before = accepted();
        let cut_us = wall_us();
        proxies.iter().for_each(|proxy| proxy.set(Faults { reset: true, ..Faults::default() }));
        pace.pass(seconds(10, 60));
        let after = accepted();
        let back_us = wall_us();
        proxies.iter().for_each(FaultProxy::heal);
        fleet.wait_until_redis_decides(pace);
        pace.pass(2 * SECOND);
        let dials: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
        (cut_us, back_us, dials)
    });
    // One dial may fall on each end of the time.
    let most = 2 * (back_us - cut_us).div_ceil(micros(SECOND)) + 1;
    println!("line: {dials:?} dials in {:?}, {most} are right", Duration::from_micros(back_us - cut_us));
    assert!(dials.iter().all(|dials| (1..=most).contains(dials)), "{dials:?} dials, {most} are right");
    let (well, back) = (between(&calls, 0, cut_us), since(&calls, back_us));
    // Beside other tests a call in a hundred waits for a processor that long; the long form runs alone.
    let beside_others = DEADLINE * u32::try_from(size(1, 0)).unwrap();
    let patience = beside_others.max(2 * p99(&well));
    let longest = longest_spike(&back, patience);
    println!("line: p99 {:?} before and {:?} after, above {patience:?} for {longest:?}", p99(&well), p99(&back));
    assert!(longest <= seconds(3, 1), "calls took longer than {patience:?} for {longest:?}");
    assert!(degraded(&since(&calls, back_us)) < back.len(), "Redis decides again");
}

/// For how long one call in a hundred took longer than this, without a break.
fn longest_spike(calls: &[Checked], patience: Duration) -> Duration {
    let first_us = calls.iter().map(|call| call.sent_us).min().unwrap();
    let last_us = calls.iter().map(|call| call.sent_us).max().unwrap();
    let (mut now, mut longest) = (Duration::ZERO, Duration::ZERO);
    for from_us in (first_us..last_us).step_by(usize::try_from(micros(PART)).unwrap()) {
        let part = between(calls, from_us, from_us + micros(PART));
        let is_slow = !part.is_empty() && p99(&part) > patience;
        now = if is_slow { now + PART } else { Duration::ZERO };
        longest = longest.max(now);
    }
    longest
}
