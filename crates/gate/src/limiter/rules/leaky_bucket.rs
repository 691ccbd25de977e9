//! Leaky bucket: every call pours its cost in, the bucket drains evenly, and what would spill over is refused.

use super::super::policy::Policy;
use super::{Frontier, Rules, Taken};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LeakyBucket {
    level: u64,
    /// Units of a token when the level was written; another one means the limit was changed.
    token: u64,
    frontier: Frontier,
}

impl Default for LeakyBucket {
    fn default() -> LeakyBucket {
        LeakyBucket { level: 0, token: 1, frontier: Frontier::default() }
    }
}

impl Rules for LeakyBucket {
    fn earliest(&mut self, policy: &Policy, cost: u64, now_us: u64) -> u64 {
        let at_us = self.frontier.steady(now_us).max(now_us);
        let poured = self.level_at(policy, at_us, now_us) + cost * policy.rate.token;
        at_us + poured.saturating_sub(policy.capacity_units()).div_ceil(policy.rate.per_us)
    }

    fn charge(&mut self, policy: &Policy, cost: u64, slot_us: u64, now_us: u64) {
        let level = self.level_at(policy, slot_us, now_us) + cost * policy.rate.token;
        *self = LeakyBucket { level, token: policy.rate.token, frontier: Frontier::at(slot_us, now_us) };
    }

    fn remaining(&mut self, policy: &Policy, now_us: u64) -> u64 {
        if self.frontier.steady(now_us) > now_us {
            return 0;
        }
        policy.capacity_units().saturating_sub(self.level_at(policy, now_us, now_us)) / policy.rate.token
    }

    fn reset_after(&mut self, policy: &Policy, now_us: u64) -> u64 {
        let at_us = self.frontier.steady(now_us).max(now_us);
        at_us - now_us + self.level_at(policy, at_us, now_us).div_ceil(policy.rate.per_us)
    }

    fn refund(&mut self, policy: &Policy, cost: u64, taken: Taken, now_us: u64) {
        let at_us = self.frontier.steady(now_us).max(now_us);
        let units = taken.units(policy, cost, now_us);
        let level = self.level_at(policy, at_us, now_us).saturating_sub(units);
        *self = LeakyBucket { level, token: policy.rate.token, frontier: Frontier::at(at_us, now_us) };
    }
}

impl LeakyBucket {
    fn level_at(&self, policy: &Policy, at_us: u64, now_us: u64) -> u64 {
        // A changed limit keeps whole calls; one that holds less than was poured starts brim-full.
        let level = if self.token == policy.rate.token {
            self.level
        } else {
            self.level.div_ceil(self.token) * policy.rate.token
        };
        let level = level.min(policy.capacity_units());
        let elapsed_us = at_us.saturating_sub(self.frontier.steady(now_us));
        if elapsed_us >= level.div_ceil(policy.rate.per_us) {
            return 0;
        }
        level - elapsed_us * policy.rate.per_us
    }
}
