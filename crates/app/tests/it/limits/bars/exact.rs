//! Bar 24: three replicas share a limit exactly.

use testkit::redis::Server;

use super::{
    SECOND,
    fleet::{Algorithm, BURST, DEADLINE, Fleet, Keys, LIMIT, OFFERED},
    measure::{allowed, degraded, due_by_bucket, due_by_log, is_quick_machine, most_in_a_second, p99, span, steady},
    seconds,
};

/// Five times the limit: never more than it in any second, and nearly all of it used.
#[test]
fn three_replicas_admit_the_limit_and_not_one_more() {
    let redis = testkit::need!(Server::start());
    let fleet = Fleet::patient(&redis.url(), Algorithm::SlidingLog);
    let calls = fleet.load(OFFERED, seconds(6, 60));
    let (admitted, most, lasting) = (allowed(&calls), most_in_a_second(&calls), span(&calls));
    let right = due_by_log(&calls).min(steady(1.0, lasting));
    println!(
        "exact: {} checks in {lasting:?}, {admitted} admitted of {right}, at most {most} in a second, p99 {:?}",
        calls.len(),
        p99(&calls)
    );
    assert!(most <= LIMIT, "{most} of {LIMIT} within one second");
    assert!(admitted <= steady(1.0, lasting) + LIMIT, "{admitted} in {lasting:?}");
    if !is_quick_machine(&calls, 2 * DEADLINE) {
        return;
    }
    assert_eq!(degraded(&calls), 0, "Redis decided every call");
    assert!(admitted as f64 >= 0.99 * right as f64, "{admitted} of {right}");
}

/// One per cent more than the limit: a refill that is rounded down would lose some of it at every call.
#[test]
fn three_replicas_that_are_offered_just_the_limit_admit_all_of_it() {
    let redis = testkit::need!(Server::start());
    let fleet = Fleet::patient(&redis.url(), Algorithm::TokenBucket);
    let offered = u32::try_from(LIMIT * 101 / 100).unwrap();
    // The burst hides a loss until it is spent.
    let first = fleet.load(OFFERED, SECOND / 2);
    let (calls, ()) = fleet.during(offered, Keys::SharedAlone, |pace| pace.pass(seconds(4, 60)));
    let (admitted, lasting) = (allowed(&calls), span(&calls));
    let right = (due_by_bucket(&[&first[..], &calls].concat(), 1) - allowed(&first)).min(steady(1.0, lasting));
    println!("exact: {} checks in {lasting:?}, {admitted} admitted of {right}", calls.len());
    assert!(admitted <= steady(1.0, lasting) + BURST, "{admitted} in {lasting:?}");
    if !is_quick_machine(&calls, 2 * DEADLINE) {
        return;
    }
    assert_eq!(degraded(&calls), 0, "Redis decided every call");
    assert!(admitted as f64 >= 0.99 * right as f64, "{admitted} of {right}");
}
