//! What each algorithm promises, for any history: the bound it prints, and that it does not refuse what it owes.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::policy::{Algorithm, Policy};
use super::rules::decide::{Limit, Report, Wait, decide};
use super::rules::{State, Taken};

const ALL: [Algorithm; 6] = [
    Algorithm::SlidingLog,
    Algorithm::TokenBucket,
    Algorithm::Gcra,
    Algorithm::SlidingCounter,
    Algorithm::FixedWindow,
    Algorithm::LeakyBucket,
];

fn any_algorithm() -> impl Strategy<Value = Algorithm> {
    proptest::sample::select(ALL.to_vec())
}

pub(super) fn any_policy() -> impl Strategy<Value = Policy> {
    (any_algorithm(), 1..50_u64, 1_000..3_000_000_u64, 1..50_u64).prop_map(|(algorithm, limit, window_us, burst)| {
        let policy = Policy::new(algorithm, limit, Duration::from_micros(window_us)).unwrap();
        policy.burst(burst).unwrap_or(policy)
    })
}

fn ask(state: &mut State, policy: &Policy, cost: u64, wait: Wait, now_us: u64) -> Report {
    let mut alone = state.clone();
    let report = decide(&mut [Limit { state, policy, cost }], wait, now_us);
    assert_eq!(
        (alone.decide(policy, cost, wait, now_us), &alone),
        (report, &*state),
        "one limit alone is decided alike"
    );
    report
}

/// The most that may pass in any time `span_us`, as `Algorithm` documents it.
pub(super) fn bound(policy: &Policy, span_us: u64) -> u64 {
    let windows_touched = span_us / policy.window_us + 2;
    match policy.algorithm {
        Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket => {
            policy.capacity + policy.limit * span_us / policy.window_us
        }
        Algorithm::SlidingLog => policy.limit * (span_us / policy.window_us + 1),
        Algorithm::FixedWindow | Algorithm::SlidingCounter => policy.limit * windows_touched,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// No pair of admissions is closer together than the bound allows what lies between them.
    #[test]
    fn never_admits_more_than_its_bound_in_any_time(
        policy in any_policy(),
        steps in vec((0..200_000_u64, 1..8_u64, any::<bool>()), 1..120),
    ) {
        let (mut state, mut now_us) = (State::default(), 1_700_000_000_000_000);
        let mut admitted: Vec<(u64, u64)> = Vec::new();
        for (pause_us, cost, is_patient) in steps {
            now_us += pause_us;
            let cost = cost.min(policy.capacity);
            let longest_us = if is_patient { 2 * policy.window_us } else { 0 };
            let report = ask(&mut state, &policy, cost, Wait::AtMost(longest_us), now_us);
            if report.wait_us <= longest_us {
                admitted.push((now_us + report.wait_us, cost));
            }
        }
        for (index, (from_us, _)) in admitted.iter().enumerate() {
            let mut sum = 0;
            for (at_us, cost) in &admitted[index..] {
                sum += cost;
                let most = bound(&policy, at_us - from_us);
                prop_assert!(sum <= most, "{sum} of at most {most} in {} us", at_us - from_us);
            }
        }
    }

    /// Coming back after `retry_after` is enough, and coming any earlier is not: retry times are exact.
    #[test]
    fn a_refused_call_passes_after_exactly_its_retry_after(
        policy in any_policy(),
        steps in vec((0..100_000_u64, 1..8_u64), 1..60),
    ) {
        let (mut state, mut now_us) = (State::default(), 1_700_000_000_000_000);
        for (pause_us, cost) in steps {
            now_us += pause_us;
            let cost = cost.min(policy.capacity);
            let report = ask(&mut state, &policy, cost, Wait::AtMost(0), now_us);
            if report.wait_us > 0 {
                let again = ask(&mut state.clone(), &policy, cost, Wait::AtMost(0), now_us + report.wait_us);
                prop_assert_eq!(again.wait_us, 0, "still refused after its own retry_after");
                let early = ask(&mut state.clone(), &policy, cost, Wait::AtMost(0), now_us + report.wait_us - 1);
                prop_assert!(early.wait_us > 0, "a microsecond early is early");
            }
        }
    }

    /// A refusal changes nothing: asking in vain never makes anybody wait longer.
    #[test]
    fn a_refusal_charges_nothing(policy in any_policy(), vain in vec(1..50_u64, 1..20)) {
        let mut state = State::default();
        let now_us = 1_700_000_000_000_000;
        ask(&mut state, &policy, policy.capacity, Wait::AtMost(0), now_us);
        let before = state.clone();
        for cost in vain {
            ask(&mut state, &policy, cost.min(policy.capacity), Wait::AtMost(0), now_us);
        }
        prop_assert_eq!(state, before);
    }

    /// A refund gives back exactly what was taken, and never more than a full limit.
    #[test]
    fn a_refund_gives_back_what_was_taken(policy in any_policy(), cost in 1..50_u64) {
        let (mut state, now_us) = (State::default(), 1_700_000_000_000_000);
        let cost = cost.min(policy.capacity);
        ask(&mut state, &policy, cost, Wait::AtMost(0), now_us);
        state.refund(&policy, cost, Taken { cost, at_us: now_us }, now_us);
        prop_assert_eq!(state.remaining(&policy, now_us), policy.capacity);
        state.refund(&policy, u64::MAX, Taken { cost: u64::MAX, at_us: now_us }, now_us);
        prop_assert_eq!(state.remaining(&policy, now_us), policy.capacity);
    }

    /// What is left can be taken, at once and whole; one more cannot.
    #[test]
    fn remaining_is_what_can_be_taken(policy in any_policy(), steps in vec((0..300_000_u64, 1..8_u64), 1..40)) {
        let (mut state, mut now_us) = (State::default(), 1_700_000_000_000_000);
        for (pause_us, cost) in steps {
            now_us += pause_us;
            ask(&mut state, &policy, cost.min(policy.capacity), Wait::AtMost(0), now_us);
        }
        let left = state.remaining(&policy, now_us);
        if left > 0 {
            prop_assert_eq!(ask(&mut state.clone(), &policy, left, Wait::AtMost(0), now_us).wait_us, 0);
        }
        if left < policy.capacity {
            prop_assert!(ask(&mut state, &policy, left + 1, Wait::AtMost(0), now_us).wait_us > 0);
        }
    }

    /// After `reset_after` the key may be forgotten: it answers as an unused one does.
    #[test]
    fn after_reset_after_a_key_is_as_good_as_unused(
        policy in any_policy(),
        steps in vec((0..300_000_u64, 1..8_u64, any::<bool>()), 1..40),
    ) {
        let (mut state, mut now_us) = (State::default(), 1_700_000_000_000_000);
        for (pause_us, cost, is_patient) in steps {
            now_us += pause_us;
            let longest_us = if is_patient { policy.window_us } else { 0 };
            ask(&mut state, &policy, cost.min(policy.capacity), Wait::AtMost(longest_us), now_us);
        }
        let later_us = now_us + state.reset_after(&policy, now_us);
        prop_assert_eq!(state.remaining(&policy, later_us), policy.capacity);
        prop_assert_eq!(state.reset_after(&policy, later_us), 0);
    }
}

/// Whoever always comes when told to gets the whole limit in every window, a few at a time and about evenly.
#[test]
fn a_log_that_is_spread_gives_all_of_its_limit_and_never_in_a_heap() {
    for (limit, at_once) in [(100, 2), (7, 1), (1, 1), (149, 2), (10_000, 200), (20, 20)] {
        let policy = Policy::spread(limit, Duration::from_secs(1), at_once).unwrap();
        let (mut state, start_us) = (State::default(), 1_700_000_000_000_000);
        let (mut now_us, mut admitted) = (start_us, Vec::new());
        while now_us < start_us + 10_000_000 {
            let report = ask(&mut state, &policy, 1, Wait::AtMost(0), now_us);
            if report.wait_us == 0 {
                admitted.push(now_us);
            }
            now_us += report.wait_us;
        }
        assert_eq!(admitted.len() as u64, 10 * limit, "all of {policy:?}");
        let apart = |count: u64| {
            let count = usize::try_from(count).unwrap();
            admitted.windows(count + 1).map(|calls| calls[count] - calls[0]).min().unwrap_or(u64::MAX)
        };
        assert!(apart(limit) >= 1_000_000, "{policy:?}");
        assert!(apart(at_once) >= policy.pace_us(), "{policy:?}");
    }
}

proptest! {
    /// Costs too: what is refused passes after exactly its time, and what costs more than may go at once goes alone.
    #[test]
    fn a_log_that_is_spread_keeps_its_window_and_its_pace(
        (limit, window_us, at_once) in (1..50_u64, 1_000..3_000_000_u64, 1..50_u64),
        steps in vec((0..100_000_u64, 1..8_u64), 1..60),
    ) {
        let at_once = at_once.min(limit);
        let policy = Policy::spread(limit, Duration::from_micros(window_us), at_once).unwrap();
        let (mut state, mut now_us) = (State::default(), 1_700_000_000_000_000);
        let mut admitted: Vec<(u64, u64)> = Vec::new();
        for (pause_us, cost) in steps {
            now_us += pause_us;
            let cost = cost.min(limit);
            let report = ask(&mut state, &policy, cost, Wait::AtMost(0), now_us);
            if report.wait_us == 0 {
                admitted.push((now_us, cost));
                continue;
            }
            let at = |at_us: u64| ask(&mut state.clone(), &policy, cost, Wait::AtMost(0), at_us).wait_us;
            prop_assert_eq!(at(now_us + report.wait_us), 0, "still refused after its own retry_after");
            prop_assert!(at(now_us + report.wait_us - 1) > 0, "a microsecond early is early");
        }
        for (index, (from_us, first)) in admitted.iter().enumerate() {
            let within = |span_us: u64| {
                let later = admitted[index + 1..].iter().take_while(move |(at_us, _)| at_us - from_us < span_us);
                later.map(|(_, cost)| cost).sum::<u64>()
            };
            prop_assert!(first + within(window_us) <= limit);
            prop_assert!(within(policy.pace_us()) == 0 || first + within(policy.pace_us()) <= at_once);
        }
    }
}

/// The story of the first limiter: refills were floored and the time moved on, so small steps never earned a token.
#[test]
fn no_fraction_of_a_token_is_lost_between_calls() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::Gcra, Algorithm::LeakyBucket] {
        let policy = Policy::new(algorithm, 1, Duration::from_secs(1)).unwrap().burst(10).unwrap();
        let (mut state, start_us) = (State::default(), 1_700_000_000_000_000);
        ask(&mut state, &policy, 10, Wait::AtMost(0), start_us);
        let calls = (1..=120_u64).map(|n| ask(&mut state, &policy, 1, Wait::AtMost(0), start_us + n * 500_000).wait_us);
        let allowed = calls.filter(|wait_us| *wait_us == 0).count();
        assert!((59..=61).contains(&allowed), "{algorithm:?} allowed {allowed} of 60");
    }
}

/// A rate that no microsecond divides is kept over a long time: 3 per 7 us for a second.
#[test]
fn odd_rates_are_exact_over_time() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::Gcra, Algorithm::LeakyBucket] {
        let policy = Policy::new(algorithm, 3, Duration::from_micros(7)).unwrap().burst(1).unwrap();
        let (mut state, start_us) = (State::default(), 1_700_000_000_000_000);
        let calls = (0..1_000_000_u64).map(|n| ask(&mut state, &policy, 1, Wait::AtMost(0), start_us + n).wait_us);
        let allowed = calls.filter(|wait_us| *wait_us == 0).count();
        // With a burst of 1 a call waits for the next whole microsecond, which loses at most the spare time.
        assert!((333_333..=428_572).contains(&allowed), "{algorithm:?} allowed {allowed}");
    }
}

#[test]
fn a_clock_that_steps_back_neither_frees_nor_blocks_for_longer_than_a_window() {
    for algorithm in ALL {
        let policy = Policy::new(algorithm, 10, Duration::from_secs(1)).unwrap();
        let (mut state, now_us) = (State::default(), 1_700_000_000_000_000);
        ask(&mut state, &policy, 10, Wait::AtMost(0), now_us);
        for back_us in [5_000, 500_000, 120_000_000] {
            let report = ask(&mut state.clone(), &policy, 1, Wait::Peek, now_us - back_us);
            assert!(report.wait_us <= 2_000_000, "{algorithm:?} waits {} us after {back_us} us back", report.wait_us);
            if back_us < 1_000_000 {
                assert!(report.wait_us > 0, "{algorithm:?} is free again {back_us} us before it was used");
            }
        }
    }
}

#[test]
fn bad_policies_are_refused_with_a_reason() {
    let second = Duration::from_secs(1);
    let error = |policy: Result<Policy, crate::Error>| policy.unwrap_err().to_string();
    assert_eq!(error(Policy::new(Algorithm::Gcra, 0, second)), "limit must be at least 1");
    assert_eq!(error(Policy::new(Algorithm::Gcra, 1, Duration::ZERO)), "window in microseconds must be at least 1");
    assert!(error(Policy::new(Algorithm::Gcra, u64::MAX, second)).starts_with("limit may be at most"));
    assert!(error(Policy::new(Algorithm::Gcra, 1, Duration::MAX)).starts_with("window in microseconds may be at most"));
    assert!(error(Policy::new(Algorithm::SlidingLog, 200_000, second)).contains("sliding log"));
    assert_eq!(error(Policy::spread(10, second, 11)), "calls at once may be at most 10");
    assert!(error(Policy::new(Algorithm::Gcra, 1, second).unwrap().burst(0)).contains("burst must be at least 1"));
    assert!(error(Policy::new(Algorithm::FixedWindow, 1, second).unwrap().burst(2)).contains("has no burst"));
    let year = Duration::from_secs(366 * 86_400);
    assert!(error(Policy::new(Algorithm::Gcra, 7, year).unwrap().burst(1 << 32)).contains("cannot be counted exactly"));
    assert!(Policy::new(Algorithm::Gcra, 1_000_003, Duration::from_secs(86_400)).is_ok(), "an odd daily limit is fine");
}

#[test]
fn the_shares_of_all_replicas_stay_within_the_limit() {
    const DAY_S: u64 = 86_400;
    let a_year = [(1_000, 2), (100, 7), (10, 3), (7, 7), (100_000, 1_000)].map(|limits| (limits, 366 * DAY_S));
    let a_month = [(30, 13), (1_000, 13), (5, 40)].map(|limits| (limits, 30 * DAY_S));
    let a_second = [(1_000, 3), (10, 3), (1, 4), (7, 7), (3, 5)].map(|limits| (limits, 1));
    for algorithm in ALL {
        for ((limit, replicas), window_s) in a_second.into_iter().chain(a_month).chain(a_year) {
            let policy = Policy::new(algorithm, limit, Duration::from_secs(window_s)).unwrap();
            let share = policy.share(replicas);
            let per_second = |policy: &Policy| policy.limit as f64 / policy.window_us as f64;
            let together = f64::from(replicas) * per_second(&share);
            assert!(together <= per_second(&policy) * 1.000_001, "{algorithm:?} {limit}/{replicas}: {share:?}");
            assert!(together >= per_second(&policy) * 0.5, "{algorithm:?} {limit}/{replicas}: {share:?}");
            assert!(share.capacity * u64::from(replicas) < limit + u64::from(replicas), "{algorithm:?} {share:?}");
        }
        let one_a_year = Policy::new(algorithm, 1, Duration::from_secs(366 * DAY_S)).unwrap();
        assert_eq!(one_a_year.share(4), one_a_year, "one each, where a longer window cannot be counted");
    }
}
