//! Token bucket: tokens are taken by calls and come back evenly, up to the burst.
//!
//! The level is in units of the rate (see `policy.rs`), so a refill between two calls is never rounded away.

use super::super::policy::Policy;
use super::{Frontier, Rules, Taken};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TokenBucket {
    level: u64,
    /// Units of a token when the level was written; another one means the limit was changed.
    token: u64,
    frontier: Frontier,
}

impl Rules for TokenBucket {
    fn earliest(&mut self, policy: &Policy, cost: u64, now_us: u64) -> u64 {
        let at_us = self.frontier.steady(now_us).max(now_us);
        let missing = (cost * policy.rate.token).saturating_sub(self.level_at(policy, at_us, now_us));
        at_us + missing.div_ceil(policy.rate.per_us)
    }

    fn charge(&mut self, policy: &Policy, cost: u64, slot_us: u64, now_us: u64) {
        let level = self.level_at(policy, slot_us, now_us).saturating_sub(cost * policy.rate.token);
        *self = TokenBucket { level, token: policy.rate.token, frontier: Frontier::at(slot_us, now_us) };
    }

    fn remaining(&mut self, policy: &Policy, now_us: u64) -> u64 {
        if self.frontier.steady(now_us) > now_us {
            return 0;
        }
        self.level_at(policy, now_us, now_us) / policy.rate.token
    }

    fn reset_after(&mut self, policy: &Policy, now_us: u64) -> u64 {
        let at_us = self.frontier.steady(now_us).max(now_us);
        let missing = policy.capacity_units() - self.level_at(policy, at_us, now_us);
        at_us - now_us + missing.div_ceil(policy.rate.per_us)
    }

    fn refund(&mut self, policy: &Policy, cost: u64, taken: Taken, now_us: u64) {
        let at_us = self.frontier.steady(now_us).max(now_us);
        let units = taken.units(policy, cost, now_us);
        let level = (self.level_at(policy, at_us, now_us) + units).min(policy.capacity_units());
        *self = TokenBucket { level, token: policy.rate.token, frontier: Frontier::at(at_us, now_us) };
    }
}

impl TokenBucket {
    pub(super) fn full(policy: &Policy) -> TokenBucket {
        TokenBucket { level: policy.capacity_units(), token: policy.rate.token, frontier: Frontier::default() }
    }

    fn level_at(&self, policy: &Policy, at_us: u64, now_us: u64) -> u64 {
        let capacity = policy.capacity_units();
        // A changed limit keeps whole tokens.
        let level =
            if self.token == policy.rate.token { self.level } else { self.level / self.token * policy.rate.token };
        let missing = capacity.saturating_sub(level);
        let elapsed_us = at_us.saturating_sub(self.frontier.steady(now_us));
        if elapsed_us >= missing.div_ceil(policy.rate.per_us) {
            return capacity;
        }
        level + elapsed_us * policy.rate.per_us
    }
}
