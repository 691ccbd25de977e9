//! The rules of once: one owner at a time, and fences that only grow.

use bytes::Bytes;
use proptest::prelude::*;

use super::claim::{Answer, Record};
use crate::Holder;

const LEASE_US: u64 = 10_000;

/// Also when records are forgotten in between, as an expired key is, and the clock stands still between claims.
#[test]
fn a_later_winner_always_has_the_larger_fence() {
    let cases = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let step = (prop_oneof![2 => Just(0u64), 3 => 1u64..8_000, 1 => Just(LEASE_US)], 0u8..4, 0u128..3);
    proptest!(cases, |(steps in proptest::collection::vec(step, 1..200))| {
        let (mut record, mut now_us, mut last) = (Record::default(), 1_000_000_000_000_000, (0, None));
        for (step_us, act, owner) in steps {
            now_us += step_us;
            let owner = Holder::fixed(owner);
            match act {
                0 | 1 => {
                    if let Answer::Won { fence } = record.claim(owner, LEASE_US, now_us) {
                        prop_assert!(fence > last.0 || (fence, Some(owner)) == last, "{} after {:?}", fence, last);
                        last = (fence, Some(owner));
                    }
                }
                2 => {
                    let is_owner = record.complete(owner, Bytes::new(), LEASE_US, now_us);
                    prop_assert!(!is_owner || last.1 == Some(owner), "completed by somebody who did not win last");
                }
                _ => {
                    let was_owner = record.abandon(owner);
                    prop_assert!(!was_owner || last.1 == Some(owner), "abandoned by somebody who did not win last");
                    if was_owner {
                        last.1 = None;
                        // Ten minutes later nothing remembers the last fence.
                        if step_us > 0 {
                            (record, now_us) = (Record::default(), now_us + 600_000_000);
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn a_claimer_who_did_not_hear_the_answer_may_ask_again() {
    let (mut record, owner, other) = (Record::default(), Holder::fixed(1), Holder::fixed(2));
    let first = record.claim(owner, LEASE_US, 5);
    assert_eq!(record.claim(owner, LEASE_US, 6), first);
    assert_eq!(record.claim(other, LEASE_US, 7), Answer::InProgress { retry_after_us: LEASE_US - 1 });
}
