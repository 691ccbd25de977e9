//! Lua equals the rules: holds that are taken, settled low and high, late, twice and never, on every algorithm.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::super::equivalence::ALL;
use super::super::policy::Algorithm;
use super::super::properties::{any_policy, bound};
use super::super::redis::RedisLimiter;
use super::super::rules::decide::{Limit, decide};
use super::*;
use crate::rig::Rig;
use crate::tasks::Tasks;

const START_US: u64 = 1_700_000_000_000_000;

#[derive(Clone, Debug)]
enum Event {
    Take(u64),
    Settle(usize, u64),
    Expire(usize),
    Reset,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// Ten holds of a burst each, taken one after the other, and cancelled together gave ten bursts at once. A price
    /// above what was held is a debt: it lets nothing through, so it is not counted here.
    #[test]
    fn what_is_used_stays_within_the_bound_whatever_is_held_settled_and_given_back(
        policy in any_policy(),
        steps in vec((0..12_u64, event(), any::<bool>()), 1..120),
    ) {
        let (mut state, mut now_us) = (State::default(), START_US);
        let mut holds: Vec<(Hold, u64)> = Vec::new();
        for (tenths, event, is_full) in steps {
            now_us += tenths.saturating_sub(4) * policy.window_us / 10;
            match event {
                Event::Take(cost) => {
                    let cost = if is_full { policy.capacity() } else { cost.min(policy.capacity()) };
                    if state.decide(&policy, cost, Wait::AtMost(0), now_us).wait_us == 0 {
                        holds.push((Hold::open(cost, now_us), cost));
                    }
                }
                // Whoever resets lets everything through once more.
                Event::Reset => (),
                Event::Settle(..) | Event::Expire(_) if holds.is_empty() => (),
                Event::Settle(pick, cost) => {
                    let count = holds.len();
                    let (hold, used) = &mut holds[pick % count];
                    let cost = if is_full { 0 } else { cost };
                    if hold.settle(&mut state, &policy, cost, now_us) == Outcome::Settled {
                        *used = cost.min(*used);
                    }
                }
                Event::Expire(pick) => {
                    let count = holds.len();
                    let (hold, used) = &mut holds[pick % count];
                    if hold.phase == Phase::Open {
                        hold.expire(&mut state, &policy, now_us);
                        *used = 0;
                    }
                }
            }
        }
        for (index, (from, _)) in holds.iter().enumerate() {
            let mut sum = 0;
            for (hold, used) in &holds[index..] {
                sum += used;
                let most = bound(&policy, hold.taken_us - from.taken_us);
                prop_assert!(sum <= most, "{sum} of at most {most} in {} us", hold.taken_us - from.taken_us);
            }
        }
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1..8_u64).prop_map(Event::Take),
        3 => (0..60_usize, 0..14_u64).prop_map(|(hold, cost)| Event::Settle(hold, cost)),
        1 => (0..60_usize).prop_map(Event::Expire),
        1 => Just(Event::Reset),
    ]
}

fn step() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(0_u64), 4 => 1..400_000_u64, 1 => 1_000_000..5_000_000_u64]
}

fn policy() -> impl Strategy<Value = Policy> {
    let window_us = prop_oneof![Just(1_000_000_u64), Just(700_001_u64), 1_000..5_000_000_u64];
    let plain = (0..ALL.len(), 1..30_u64, window_us).prop_map(|(algorithm, limit, window_us)| {
        Policy::new(ALL[algorithm], limit, Duration::from_micros(window_us)).unwrap()
    });
    let first = START_US / 60_000_000;
    let calendar = (1..30_u64).prop_map(move |limit| {
        Policy::calendar(limit, [first, first + 1, first + 2, first + 3].map(|minute| minute * 60)).unwrap()
    });
    prop_oneof![6 => plain, 1 => calendar]
}

/// As a state is kept: what is as good as unused is forgotten.
fn kept(mut state: State, policy: &Policy, now_us: u64) -> State {
    if state.reset_after(policy, now_us) == 0 { State::default() } else { state }
}

#[test]
fn holds_in_lua_equal_the_rules() {
    let server = testkit::need!(testkit::redis());
    let rig = Rig::new(&server);
    let redis = RedisHolds::new(&rig.redis, &Tasks::default());
    let limiter = RedisLimiter::new(&rig.redis, &Tasks::default());
    Rig::histories(400, &(policy(), vec((step(), event()), 40)), |(policy, events)| {
        let (mut state, mut now_us, key) = (State::default(), START_US, Rig::fresh_key());
        let mut holds: Vec<(Holder, Hold)> = Vec::new();
        let mut reset_us = 0;
        for (index, (step, event)) in events.into_iter().enumerate() {
            now_us += step;
            rig.clock.set_us(now_us);
            let wrong = |rules: &dyn fmt::Debug, lua: &dyn fmt::Debug| {
                let text = format!("step {index} {event:?} at {now_us} of {policy:?}: rules {rules:?}, lua {lua:?}");
                Err(TestCaseError::fail(text))
            };
            match event {
                Event::Take(cost) => {
                    let (cost, holder) = (cost.min(policy.capacity()), Holder::random());
                    let mut after = state.clone();
                    let limit = Limit { state: &mut after, policy: &policy, cost };
                    let rules = decide(&mut [limit], Wait::AtMost(0), now_us);
                    let lua = rig.ask(redis.hold(&key, &policy, cost, holder, 60_000_000));
                    if rules != lua {
                        return wrong(&rules, &lua);
                    }
                    if rules.wait_us == 0 {
                        state = kept(after, &policy, now_us);
                        let is_forgotten = reset_us == now_us;
                        holds.push((holder, Hold { is_forgotten, ..Hold::open(cost, now_us) }));
                    }
                }
                Event::Reset => {
                    (state, reset_us) = (State::default(), now_us);
                    holds.iter_mut().for_each(|(_, hold)| hold.is_forgotten = true);
                    rig.ask(limiter.reset(&key, &policy));
                }
                Event::Settle(..) | Event::Expire(_) if holds.is_empty() => (),
                Event::Settle(pick, cost) => {
                    let count = holds.len();
                    let (holder, hold) = &mut holds[pick % count];
                    let outcome = hold.settle(&mut state, &policy, cost, now_us);
                    let lua = rig.ask(redis.settle(&key, &policy, *holder, cost));
                    let reset_after = Duration::from_micros(state.reset_after(&policy, now_us));
                    let remaining = state.remaining(&policy, now_us);
                    let rules = Settlement { outcome, cost: hold.cost, remaining, reset_after };
                    if rules != lua {
                        return wrong(&rules, &lua);
                    }
                    state = kept(state, &policy, now_us);
                }
                Event::Expire(pick) => {
                    let count = holds.len();
                    let (holder, hold) = &mut holds[pick % count];
                    hold.expire(&mut state, &policy, now_us);
                    let lua = rig.ask(redis.expire(&key, &policy, *holder)).remaining;
                    let rules = state.remaining(&policy, now_us);
                    if rules != lua {
                        return wrong(&rules, &lua);
                    }
                    state = kept(state, &policy, now_us);
                }
            }
        }
        Ok(())
    });
}

/// A line that stayed until its end made every sweep look at it again.
#[test]
fn the_line_of_a_hold_goes_when_it_is_settled_refused_or_over() {
    let server = testkit::need!(testkit::redis());
    let rig = Rig::new(&server);
    rig.clock.set_us(START_US);
    let (redis, key) = (RedisHolds::new(&rig.redis, &Tasks::default()), Rig::fresh_key());
    let policy = Policy::new(Algorithm::Gcra, 10, Duration::from_secs(3_600)).unwrap();
    let take = |cost| {
        let holder = Holder::random();
        (holder, rig.ask(redis.hold(&key, &policy, cost, holder, 60_000_000)).wait_us == 0)
    };
    let ((settled, _), (_, is_taken), (_, is_refused_taken)) = (take(2), take(8), take(1));
    assert!(is_taken && !is_refused_taken);
    rig.ask(redis.settle(&key, &policy, settled, 1));
    assert_eq!((rig.ask(redis.lines()), rig.ask(redis.sweep()), rig.ask(redis.lines())), (3, 0, 1));
    rig.clock.set_us(START_US + 60_000_000);
    assert_eq!((rig.ask(redis.sweep()), rig.ask(redis.lines())), (1, 0));
}

#[test]
fn a_token_reads_back_what_it_wrote_and_nothing_else() {
    for is_shared in [true, false] {
        let token = Token { is_shared, holder: Holder::random() };
        assert_eq!(Token::parse(&token.to_string()), Some(token));
    }
    for text in ["", "s", "x00000000000000000000000000000000", "s0", "l0000000000000000000000000000000Z"] {
        assert_eq!(Token::parse(text), None, "{text}");
    }
}
