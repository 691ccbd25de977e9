//! The contract between the two languages: random histories through the rules and through Lua give equal answers.
//!
//! Per algorithm 260 histories of 40 steps: check, peek, reserve and refund with random costs, times that stand, creep,
//! jump and step back, and limits that change under way.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::policy::{Algorithm, Policy};
use super::redis::RedisLimiter;
use super::rules::decide::{Limit, Report, Wait, decide, decide_every};
use super::rules::{State, Taken};
use super::{Ask, Limits};
use crate::rig::Rig;
use crate::tasks::Tasks;
use crate::{Error, Key};

const HISTORIES: u32 = 260;
const STEPS: usize = 40;
const START_US: u64 = 1_700_000_000_000_000;
pub(super) const ALL: [Algorithm; 6] = [
    Algorithm::Gcra,
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
    Algorithm::FixedWindow,
    Algorithm::SlidingCounter,
    Algorithm::SlidingLog,
];

#[derive(Clone, Debug)]
enum Act {
    Decide(Wait),
    /// Of what was taken at most so long ago.
    Refund(u64),
}

#[derive(Clone, Debug)]
struct Step {
    /// What happens to the clock before the step.
    move_us: i64,
    act: Act,
    cost: u64,
    /// Which of the history's policies is in force.
    policy: usize,
}

fn step() -> impl Strategy<Value = Step> {
    let move_us = prop_oneof![
        3 => Just(0_i64),
        4 => 1..500_000_i64,
        2 => 500_000..3_000_000_i64,
        1 => -2_000_000..0_i64,
        1 => Just(3_600_000_000_i64),
        1 => Just(-3_600_000_000_i64),
    ];
    let act = prop_oneof![
        5 => Just(Act::Decide(Wait::AtMost(0))),
        1 => Just(Act::Decide(Wait::Peek)),
        2 => (1..5_000_000_u64).prop_map(|longest_us| Act::Decide(Wait::AtMost(longest_us))),
        1 => prop_oneof![Just(0_u64), 1..500_000_u64, Just(3_000_000_u64)].prop_map(Act::Refund),
    ];
    let policy = prop_oneof![8 => Just(0_usize), 1 => Just(1_usize)];
    (move_us, act, 1..12_u64, policy).prop_map(|(move_us, act, cost, policy)| Step { move_us, act, cost, policy })
}

/// Small limits meet their edges often; the odd ones have rates that no microsecond divides.
fn policy(algorithm: Algorithm) -> impl Strategy<Value = Policy> {
    let window_us = prop_oneof![Just(1_000_000_u64), Just(700_001_u64), Just(60_000_000_u64), 1_000..5_000_000_u64];
    (1..30_u64, window_us, 1..40_u64).prop_map(move |(limit, window_us, burst)| {
        let policy = Policy::new(algorithm, limit, std::time::Duration::from_micros(window_us)).unwrap();
        policy.burst(burst).unwrap_or(policy)
    })
}

fn spread() -> impl Strategy<Value = Policy> {
    (1..30_u64, 1_000..5_000_000_u64, 1..30_u64).prop_map(|(limit, window_us, at_once)| {
        Policy::spread(limit, std::time::Duration::from_micros(window_us), at_once.min(limit)).unwrap()
    })
}

/// As both backends keep states: a step that takes nothing writes nothing, and what is as good as unused is forgotten.
fn apply_rules(kept: &mut State, policy: &Policy, step: &Step, now_us: u64) -> Report {
    let mut state = kept.clone();
    let (report, is_written) = match step.act {
        Act::Decide(wait) => {
            let report = decide(&mut [Limit { state: &mut state, policy, cost: step.cost }], wait, now_us);
            (report, matches!(wait, Wait::AtMost(longest_us) if report.wait_us <= longest_us))
        }
        Act::Refund(ago_us) => {
            state.refund(policy, step.cost, Taken { cost: step.cost, at_us: now_us - ago_us }, now_us);
            let (remaining, reset_after_us) = (state.remaining(policy, now_us), state.reset_after(policy, now_us));
            (Report { limit: 0, wait_us: 0, remaining, reset_after_us }, true)
        }
    };
    if is_written {
        *kept = if report.reset_after_us == 0 { State::default() } else { state };
    }
    report
}

async fn apply_lua(redis: &RedisLimiter, key: &Key, policy: &Policy, step: &Step) -> Result<Report, Error> {
    match step.act {
        Act::Decide(wait) => {
            let ask = [Ask { key: key.clone(), policy: *policy, cost: step.cost }];
            redis.decide(&Limits(&ask), wait).await
        }
        Act::Refund(ago_us) => redis.refund(key, policy, step.cost, ago_us).await,
    }
}

fn lua_equals_rules(algorithm: Algorithm) {
    histories_agree(|| policy(algorithm));
}

fn any_policy() -> impl Strategy<Value = Policy> {
    prop_oneof![6 => (0..ALL.len()).prop_flat_map(|index| policy(ALL[index])), 1 => spread()]
}

/// Edges near the history's beginning, so that it crosses all of them and goes beyond.
fn calendar() -> impl Strategy<Value = Policy> {
    let minutes = || prop_oneof![Just(1_u64), 1..120_u64];
    (1..30_u64, 0..90_u64, minutes(), minutes(), minutes()).prop_map(|(limit, ago, a, b, c)| {
        let first = START_US / 60_000_000 - ago;
        Policy::calendar(limit, [first, first + a, first + a + b, first + a + b + c].map(|edge| edge * 60)).unwrap()
    })
}

fn histories_agree<S: Strategy<Value = Policy>>(policy: impl Fn() -> S) {
    let server = testkit::need!(testkit::redis());
    let rig = Rig::new(&server);
    let limiter = RedisLimiter::new(&rig.redis, &Tasks::default());
    let history = (policy(), policy(), vec(step(), STEPS));
    Rig::histories(HISTORIES, &history, |(first, second, steps)| {
        let (mut state, key, mut now_us) = (State::default(), Rig::fresh_key(), START_US);
        for (index, step) in steps.into_iter().enumerate() {
            let policy = [&first, &second][step.policy];
            let step = Step { cost: step.cost.min(policy.capacity()), ..step };
            now_us = now_us.saturating_add_signed(step.move_us);
            rig.clock.set_us(now_us);
            let rules = apply_rules(&mut state, policy, &step, now_us);
            let lua = rig.ask(apply_lua(&limiter, &key, policy, &step));
            if rules != lua {
                let text =
                    format!("step {index} {step:?} at {now_us} of {policy:?}: rules {rules:?}, lua {lua:?}, {state:?}");
                return Err(TestCaseError::fail(text));
            }
        }
        Ok(())
    });
}

#[test]
fn gcra_in_lua_equals_the_rules() {
    lua_equals_rules(Algorithm::Gcra);
}

#[test]
fn token_bucket_in_lua_equals_the_rules() {
    lua_equals_rules(Algorithm::TokenBucket);
}

#[test]
fn leaky_bucket_in_lua_equals_the_rules() {
    lua_equals_rules(Algorithm::LeakyBucket);
}

#[test]
fn fixed_window_in_lua_equals_the_rules() {
    lua_equals_rules(Algorithm::FixedWindow);
}

#[test]
fn calendar_quota_in_lua_equals_the_rules() {
    histories_agree(calendar);
}

#[test]
fn sliding_counter_in_lua_equals_the_rules() {
    lua_equals_rules(Algorithm::SlidingCounter);
}

#[test]
fn sliding_log_in_lua_equals_the_rules() {
    lua_equals_rules(Algorithm::SlidingLog);
}

#[test]
fn a_log_that_is_spread_in_lua_equals_the_rules() {
    histories_agree(spread);
}

/// Those that come while a script is under way share the next one, where they meet the same state one after the other.
#[test]
fn calls_at_a_time_in_lua_equal_the_rules_one_after_the_other() {
    let server = testkit::need!(testkit::redis());
    let rig = Rig::new(&server);
    let limiter = RedisLimiter::new(&rig.redis, &Tasks::default());
    let history = (any_policy(), vec((step(), vec(1..12_u64, 1..8)), STEPS));
    Rig::histories(HISTORIES, &history, |(policy, steps)| {
        let (mut state, key, mut now_us) = (State::default(), Rig::fresh_key(), START_US);
        for (index, (step, costs)) in steps.into_iter().enumerate() {
            now_us = now_us.saturating_add_signed(step.move_us);
            rig.clock.set_us(now_us);
            let one = |cost: u64| Step { cost: cost.min(policy.capacity()), ..step.clone() };
            let crowd: Vec<Step> = costs.into_iter().map(one).collect();
            let rules: Vec<Report> = crowd.iter().map(|step| apply_rules(&mut state, &policy, step, now_us)).collect();
            let all = crowd.iter().map(|step| apply_lua(&limiter, &key, &policy, step));
            let lua = rig.ask(futures_util::future::try_join_all(all));
            if rules != lua {
                let text = format!("step {index} {crowd:?} at {now_us} of {policy:?}: rules {rules:?}, lua {lua:?}");
                return Err(TestCaseError::fail(text));
            }
        }
        Ok(())
    });
}

/// Two limits of one call, of any algorithms: the same reports, and the same states afterwards.
#[test]
fn several_limits_in_lua_equal_the_rules() {
    let server = testkit::need!(testkit::redis());
    let rig = Rig::new(&server);
    let limiter = RedisLimiter::new(&rig.redis, &Tasks::default());
    let history = (any_policy(), any_policy(), vec((step(), 1..12_u64), STEPS));
    Rig::histories(HISTORIES, &history, |(first, second, steps)| {
        let (mut kept, mut now_us) = ([State::default(), State::default()], START_US);
        let key = Rig::fresh_key();
        let keys = [key.clone(), key.scoped("second").unwrap()];
        for (index, (step, other)) in steps.into_iter().enumerate() {
            now_us = now_us.saturating_add_signed(step.move_us);
            rig.clock.set_us(now_us);
            let costs = [step.cost.min(first.capacity()), other.min(second.capacity())];
            let mut states = kept.clone();
            let [one, two] = &mut states;
            let rules = decide_every(
                &mut [
                    Limit { state: one, policy: &first, cost: costs[0] },
                    Limit { state: two, policy: &second, cost: costs[1] },
                ],
                true,
                now_us,
            );
            if rules.iter().all(|report| report.wait_us == 0) {
                kept = states;
            }
            let asks = [(&keys[0], &first, costs[0]), (&keys[1], &second, costs[1])].map(|(key, policy, cost)| Ask {
                key: key.clone(),
                policy: *policy,
                cost,
            });
            let lua = rig.ask(limiter.decide_every(&Limits(&asks)));
            if rules != lua {
                return Err(TestCaseError::fail(format!("step {index} at {now_us}: rules {rules:?}, lua {lua:?}")));
            }
        }
        Ok(())
    });
}
