//! Lua equals the rules: random histories through both give the same answers, step by step.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::Policy;
use super::permits::{Check, Permits};
use super::redis::RedisSemaphore;
use crate::Holder;
use crate::rig::Rig;

#[derive(Clone, Debug)]
enum Event {
    Acquire,
    Renew(u8),
    Release(u8),
    Held,
}

#[derive(Debug, PartialEq)]
enum Said {
    Check(Check),
    Held(u32),
    Yes(bool),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        5 => Just(Event::Acquire),
        3 => (0u8..12).prop_map(Event::Renew),
        3 => (0u8..12).prop_map(Event::Release),
        1 => Just(Event::Held),
    ]
}

/// Mostly short, sometimes exactly or nearly the lease, rarely backwards.
fn step() -> impl Strategy<Value = i64> {
    prop_oneof![6 => 0i64..3_000, 2 => 9_990i64..10_010, 1 => Just(10_000), 1 => -3_000i64..0]
}

fn run(
    rig: &Rig,
    shared: &RedisSemaphore,
    limit: u32,
    leases_ms: (u64, u64),
    history: &[(i64, Event)],
) -> Result<(), TestCaseError> {
    let key = Rig::fresh_key();
    let (mut permits, mut now_us) = (Permits::default(), 1_000_000_000_000_000_u64);
    let mut recent: Vec<Holder> = vec![Holder::random()];
    for (index, (step, event)) in history.iter().enumerate() {
        now_us = now_us.saturating_add_signed(*step);
        rig.clock.set_us(now_us);
        // Two callers with different leases share the key, as during a change of policy.
        let lease_ms = if index % 5 == 0 { leases_ms.1 } else { leases_ms.0 };
        let policy = Policy::new(limit, Duration::from_millis(lease_ms)).unwrap();
        let one = |pick: u8| recent[recent.len() - 1 - usize::from(pick) % recent.len()];
        let (redis, rules) = match event {
            Event::Acquire => {
                let holder = Holder::random();
                let redis = rig.ask(shared.acquire(&key, &policy, holder));
                recent.push(holder);
                (Said::Check(redis), Said::Check(permits.acquire(&policy, holder, now_us)))
            }
            Event::Renew(pick) => {
                let holder = one(*pick);
                let redis = rig.ask(shared.renew(&key, &policy, holder));
                (Said::Yes(redis), Said::Yes(permits.renew(&policy, holder, now_us)))
            }
            Event::Release(pick) => {
                let holder = one(*pick);
                let redis = rig.ask(shared.release(&key, holder));
                (Said::Yes(redis), Said::Yes(permits.release(holder)))
            }
            Event::Held => (Said::Held(rig.ask(shared.held(&key))), Said::Held(permits.held(now_us))),
        };
        prop_assert_eq!(redis, rules, "after {:?} at {}", event, now_us);
        prop_assert!(permits.held(now_us) <= limit, "{} of {} are held", permits.held(now_us), limit);
    }
    Ok(())
}

/// 300 histories of 40 to 80 steps: at least 12,000 steps a run.
#[test]
fn whatever_happens_in_whatever_order_lua_and_the_rules_agree_and_never_exceed_the_limit() {
    let server = testkit::need!(testkit::redis());
    let rig = Rig::new(&server);
    let shared = RedisSemaphore::new(rig.redis.clone());
    // The keys' own expiry runs on Redis' real clock, so leases here are long enough to outlast a history.
    let strategy =
        (1u32..6, (Just(10_000u64), 5_000u64..15_000), vec((step().prop_map(|us| us * 1_000), event()), 40..80));
    Rig::histories(300, &strategy, |(limit, leases_ms, history)| run(&rig, &shared, limit, leases_ms, &history));
}
