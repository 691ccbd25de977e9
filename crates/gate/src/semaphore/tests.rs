//! The rules of the semaphore: whatever happens, no more permits are live than the limit.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;

use super::Policy;
use super::permits::{Check, Permits};
use crate::Holder;

const LEASE_US: u64 = 10_000;

fn policy(limit: u32) -> Policy {
    Policy::new(limit, Duration::from_micros(LEASE_US)).unwrap()
}

#[derive(Clone, Debug)]
enum Event {
    Acquire,
    Renew(usize),
    Release(usize),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => Just(Event::Acquire),
        2 => any::<usize>().prop_map(Event::Renew),
        1 => any::<usize>().prop_map(Event::Release),
    ]
}

/// A second account of who holds what, kept by the callers themselves.
#[test]
fn callers_who_keep_their_own_books_never_find_more_holders_than_the_limit() {
    let cases = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    proptest!(cases, |(limit in 1u32..6, events in proptest::collection::vec((0u64..4_000, event()), 1..200))| {
        let (mut permits, mut now_us, mut seen) = (Permits::default(), 1_000_000, Vec::new());
        let mut books: HashMap<Holder, u64> = HashMap::new();
        for (step_us, event) in events {
            now_us += step_us;
            match event {
                Event::Acquire => {
                    let holder = Holder::random();
                    let live = books.values().filter(|end_us| now_us < **end_us).count();
                    let check = permits.acquire(&policy(limit), holder, now_us);
                    prop_assert_eq!(check == Check::Pass, live < limit as usize);
                    if check == Check::Pass {
                        books.insert(holder, now_us + LEASE_US);
                        seen.push(holder);
                    } else {
                        let first_us = books.values().filter(|end_us| now_us < **end_us).min();
                        let retry_after_us = first_us.unwrap() - now_us;
                        prop_assert_eq!(check, Check::Full { retry_after_us });
                    }
                }
                Event::Renew(pick) if !seen.is_empty() => {
                    let holder = seen[pick % seen.len()];
                    let is_live = books.get(&holder).is_some_and(|end_us| now_us < *end_us);
                    prop_assert_eq!(permits.renew(&policy(limit), holder, now_us), is_live);
                    if is_live {
                        books.insert(holder, now_us + LEASE_US);
                    }
                }
                Event::Release(pick) if !seen.is_empty() => {
                    let holder = seen[pick % seen.len()];
                    permits.release(holder);
                    prop_assert!(!permits.release(holder), "the second time does nothing");
                    books.remove(&holder);
                }
                Event::Renew(_) | Event::Release(_) => (),
            }
            prop_assert!(permits.held(now_us) <= limit);
        }
    });
}

#[test]
fn a_share_is_even_and_at_least_one() {
    assert_eq!(policy(10).share(3).limit, 3);
    assert_eq!(policy(2).share(3).limit, 1);
    assert_eq!(policy(2).share(0).limit, 2);
}
