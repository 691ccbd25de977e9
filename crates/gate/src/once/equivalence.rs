//! Lua equals the rules: random histories through both give the same answers, step by step.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::claim::{Answer, Record};
use super::redis::RedisOnce;
use crate::Holder;
use crate::rig::Rig;

#[derive(Clone, Debug)]
enum Event {
    Claim(u8),
    Renew(u8),
    Complete(u8, Vec<u8>),
    Abandon(u8),
}

#[derive(Debug, PartialEq)]
enum Said {
    Answer(Answer),
    Yes(bool),
}

fn event() -> impl Strategy<Value = Event> {
    let owner = || 0u8..3;
    prop_oneof![
        6 => owner().prop_map(Event::Claim),
        2 => owner().prop_map(Event::Renew),
        2 => (owner(), vec(any::<u8>(), 0..6)).prop_map(|(owner, result)| Event::Complete(owner, result)),
        1 => owner().prop_map(Event::Abandon),
    ]
}

fn run(rig: &Rig, shared: &RedisOnce, history: &[(i64, Event)]) -> Result<(), TestCaseError> {
    const LEASE_US: u64 = 10_000;
    const KEEP_US: u64 = 20_000;
    let name = Rig::fresh_key();
    let (mut record, mut now_us, mut last_fence) = (Record::default(), 1_000_000_000_000_000_u64, (0, None));
    for (step, event) in history {
        now_us = now_us.saturating_add_signed(*step);
        rig.clock.set_us(now_us);
        let holder = |owner: &u8| Holder::fixed(u128::from(*owner) + 1);
        let (redis, rules) = match event {
            Event::Claim(owner) => {
                let redis = rig.ask(shared.claim(&name, holder(owner), LEASE_US));
                let rules = record.claim(holder(owner), LEASE_US, now_us);
                if let Answer::Won { fence } = rules {
                    let is_again = last_fence == (fence, Some(*owner));
                    prop_assert!(is_again || fence > last_fence.0, "fence {} after {:?}", fence, last_fence);
                    last_fence = (fence, Some(*owner));
                }
                (Said::Answer(redis), Said::Answer(rules))
            }
            Event::Renew(owner) => {
                let redis = rig.ask(shared.renew(&name, holder(owner), LEASE_US));
                (Said::Yes(redis), Said::Yes(record.renew(holder(owner), LEASE_US, now_us)))
            }
            Event::Complete(owner, result) => {
                let redis = rig.ask(shared.complete(&name, holder(owner), result, KEEP_US));
                let rules = record.complete(holder(owner), Bytes::copy_from_slice(result), KEEP_US, now_us);
                (Said::Yes(redis), Said::Yes(rules))
            }
            Event::Abandon(owner) => {
                let redis = rig.ask(shared.abandon(&name, holder(owner)));
                (Said::Yes(redis), Said::Yes(record.abandon(holder(owner))))
            }
        };
        prop_assert_eq!(redis, rules, "after {:?} at {}", event, now_us);
    }
    Ok(())
}

/// 300 histories of 40 to 80 steps: at least 12,000 steps a run.
#[test]
fn whatever_happens_in_whatever_order_lua_and_the_rules_agree_and_fences_grow() {
    let server = testkit::need!(testkit::redis());
    let rig = Rig::new(&server);
    let shared = RedisOnce::new(rig.redis.clone());
    let step = prop_oneof![5 => 0i64..3_000, 2 => Just(10_000), 1 => 10_000i64..30_000, 1 => -5_000i64..0];
    Rig::histories(300, &vec((step, event()), 40..80), |history| run(&rig, &shared, &history));
}
