//! Fixed window: a counter per window. Windows begin at multiples of their length since the Unix epoch, or at the edges
//! of a calendar.

use super::super::policy::Policy;
use super::{Frontier, Rules, Taken};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct FixedWindow {
    count: u64,
    /// Also says which window the count is of.
    frontier: Frontier,
}

impl Rules for FixedWindow {
    fn earliest(&mut self, policy: &Policy, cost: u64, now_us: u64) -> u64 {
        let at_us = self.frontier.steady(now_us).max(now_us);
        if self.count_at(policy, at_us, now_us) + cost <= policy.limit { at_us } else { next_start(policy, at_us) }
    }

    fn charge(&mut self, policy: &Policy, cost: u64, slot_us: u64, now_us: u64) {
        let count = self.count_at(policy, slot_us, now_us) + cost;
        *self = FixedWindow { count, frontier: Frontier::at(slot_us, now_us) };
    }

    fn remaining(&mut self, policy: &Policy, now_us: u64) -> u64 {
        if self.frontier.steady(now_us) > now_us {
            return 0;
        }
        policy.limit.saturating_sub(self.count_at(policy, now_us, now_us))
    }

    fn reset_after(&mut self, policy: &Policy, now_us: u64) -> u64 {
        let at_us = self.frontier.steady(now_us).max(now_us);
        if self.count_at(policy, at_us, now_us) == 0 { at_us - now_us } else { next_start(policy, at_us) - now_us }
    }

    /// A window that is over gives nothing to the next one.
    fn refund(&mut self, policy: &Policy, cost: u64, taken: Taken, now_us: u64) {
        let at_us = self.frontier.steady(now_us).max(now_us);
        if start(policy, taken.at_us) != start(policy, at_us) {
            return;
        }
        let count = self.count_at(policy, at_us, now_us).saturating_sub(cost);
        *self = FixedWindow { count, frontier: Frontier::at(at_us, now_us) };
    }
}

impl FixedWindow {
    fn count_at(&self, policy: &Policy, at_us: u64, now_us: u64) -> u64 {
        if start(policy, self.frontier.steady(now_us)) == start(policy, at_us) { self.count } else { 0 }
    }
}

fn start(policy: &Policy, at_us: u64) -> u64 {
    match &policy.calendar {
        Some(calendar) => calendar.window(at_us).0,
        None => at_us - at_us % policy.window_us,
    }
}

fn next_start(policy: &Policy, at_us: u64) -> u64 {
    match &policy.calendar {
        Some(calendar) => calendar.window(at_us).1,
        None => start(policy, at_us) + policy.window_us,
    }
}
