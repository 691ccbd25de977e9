//! The rules on a map in this process.

use std::sync::Arc;

use super::policy::Policy;
use super::rules::decide::{Limit, Report, Wait, decide, decide_every};
use super::rules::{State, Taken};
use super::{Ask, Limits};
use crate::Key;
use crate::map::Map;

#[derive(Clone)]
pub(super) struct MemoryLimiter {
    states: Arc<Map<State>>,
}

impl MemoryLimiter {
    pub(super) fn new(max_keys: usize) -> MemoryLimiter {
        MemoryLimiter { states: Arc::new(Map::new("limiter", max_keys)) }
    }

    pub(super) fn decide_one(&self, key: &Key, policy: &Policy, cost: u64, wait: Wait, now_us: u64) -> Report {
        self.states.update(key, now_us, |state| {
            let report = state.decide(policy, cost, wait, now_us);
            (report, now_us + report.reset_after_us)
        })
    }

    /// All keys are locked together, so nobody sees half a decision. `share` turns a policy into this process's part.
    pub(super) fn decide(
        &self,
        limits: &Limits<'_>,
        wait: Wait,
        now_us: u64,
        share: impl Fn(&Policy) -> Policy,
    ) -> Report {
        if let [Ask { key, policy, cost }] = limits.asks() {
            let policy = share(policy);
            return self.decide_one(key, &policy, (*cost).min(policy.capacity()), wait, now_us);
        }
        self.update_all(limits, now_us, share, |all| decide(all, wait, now_us))
    }

    /// The same, with a report for each limit.
    pub(super) fn decide_every(
        &self,
        limits: &Limits<'_>,
        takes: bool,
        now_us: u64,
        share: impl Fn(&Policy) -> Policy,
    ) -> Vec<Report> {
        self.update_all(limits, now_us, share, |all| decide_every(all, takes, now_us))
    }

    fn update_all<R>(
        &self,
        limits: &Limits<'_>,
        now_us: u64,
        share: impl Fn(&Policy) -> Policy,
        f: impl FnOnce(&mut [Limit<'_>]) -> R,
    ) -> R {
        let policies: Vec<Policy> = limits.asks().iter().map(|ask| share(&ask.policy)).collect();
        let keys: Vec<&Key> = limits.asks().iter().map(|ask| &ask.key).collect();
        self.states.update_all(&keys, now_us, |states| {
            let mut all: Vec<Limit<'_>> = states
                .iter_mut()
                .zip(&policies)
                .zip(limits.asks())
                .map(|((state, policy), ask)| Limit { state, policy, cost: ask.cost.min(policy.capacity()) })
                .collect();
            let result = f(&mut all);
            let idle = all.iter_mut().map(|limit| now_us + limit.state.reset_after(limit.policy, now_us)).collect();
            (result, idle)
        })
    }

    /// Gives back all of what was taken that is not back already.
    pub(super) fn refund(&self, key: &Key, policy: &Policy, taken: Taken, now_us: u64) -> Report {
        let refund = |state: &mut State| state.refund(policy, taken.cost, taken, now_us);
        let ((), remaining, reset_after_us) = self.correct(key, policy, now_us, refund);
        Report { limit: 0, wait_us: 0, remaining, reset_after_us }
    }

    /// Changes a state by hand; answers what `f` did, what remains and when it is as if never used.
    pub(super) fn correct<R>(
        &self,
        key: &Key,
        policy: &Policy,
        now_us: u64,
        f: impl FnOnce(&mut State) -> R,
    ) -> (R, u64, u64) {
        self.states.update(key, now_us, |state| {
            let result = f(state);
            let (remaining, reset_after_us) = (state.remaining(policy, now_us), state.reset_after(policy, now_us));
            let idle_from_us = if reset_after_us == 0 { 0 } else { now_us + reset_after_us };
            ((result, remaining, reset_after_us), idle_from_us)
        })
    }

    /// Follows what Redis decided, so that a fallback starts from where the fleet stands and not from full.
    pub(super) fn follow(&self, key: &Key, policy: &Policy, charged: u64, remaining: u64, now_us: u64) {
        self.states.update(key, now_us, |state| {
            let charged = charged.min(state.remaining(policy, now_us));
            if charged > 0 {
                state.charge(policy, charged, now_us, now_us);
            }
            state.lower_to(policy, remaining, now_us);
            ((), now_us + state.reset_after(policy, now_us))
        });
    }

    pub(super) fn reset(&self, key: &Key) {
        self.states.remove(key);
    }

    pub(super) fn len(&self) -> usize {
        self.states.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limiter::Algorithm;

    const NOW: u64 = 1_700_000_000_000_000;

    /// Takes ten of ten, gives one back later, and says how many can be taken then.
    fn taken_after_one_was_given_back(algorithm: Algorithm, later_us: u64) -> usize {
        let (limiter, key) = (MemoryLimiter::new(10), Key::new("k").unwrap());
        let policy = Policy::new(algorithm, 10, Duration::from_secs(1)).unwrap();
        let take = |now_us| limiter.decide_one(&key, &policy, 1, Wait::AtMost(0), now_us).wait_us == 0;
        assert_eq!((0..20).filter(|_| take(NOW)).count(), 10);
        let others = (0..20).filter(|_| take(NOW + later_us)).count();
        limiter.refund(&key, &policy, Taken { cost: 1, at_us: NOW }, NOW + later_us);
        others + (0..20).filter(|_| take(NOW + later_us)).count()
    }

    #[test]
    fn what_is_given_back_is_free_again_unless_it_came_back_by_itself() {
        for algorithm in [Algorithm::Gcra, Algorithm::TokenBucket, Algorithm::LeakyBucket] {
            assert_eq!(taken_after_one_was_given_back(algorithm, 0), 1, "{algorithm:?}");
            assert_eq!(taken_after_one_was_given_back(algorithm, 500_000), 5, "{algorithm:?}");
        }
        assert_eq!(taken_after_one_was_given_back(Algorithm::FixedWindow, 500_000), 1);
    }

    #[test]
    fn what_no_longer_counts_is_not_given_back() {
        assert_eq!(taken_after_one_was_given_back(Algorithm::FixedWindow, 1_500_000), 10);
        assert_eq!(taken_after_one_was_given_back(Algorithm::SlidingLog, 1_500_000), 10);
    }
}
