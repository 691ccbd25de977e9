//! The limiter in this process alone: no backend, no runtime, no future.

use super::decision::Decision;
use super::memory::MemoryLimiter;
use super::policy::Policy;
use super::rules::decide::Wait;
use crate::{Clock, Key};

/// For code that limits itself and shares with nobody. Cheap to clone.
#[derive(Clone)]
pub struct Memory {
    states: MemoryLimiter,
    clock: Clock,
}

impl Memory {
    /// Keeps at most `max_keys`; idle ones go first.
    pub fn new(max_keys: usize, clock: Clock) -> Memory {
        Memory { states: MemoryLimiter::new(max_keys), clock }
    }

    /// May this go ahead now? If so it is counted. A cost of 0 counts nothing.
    pub fn check(&self, key: &Key, policy: &Policy, cost: u64) -> Decision {
        if cost > policy.capacity() {
            return Decision::never(0, policy);
        }
        let report = self.states.decide_one(key, policy, cost, Wait::AtMost(0), self.clock.now_us());
        Decision::from_report(&report, policy, false)
    }

    /// Keys with a state.
    pub fn len(&self) -> usize {
        self.states.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
