//! Sliding log: the time and cost of every call in the window. Exact, at the price of one entry per call.

use std::collections::VecDeque;

use super::super::policy::Policy;
use super::{Frontier, Rules, Taken};

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SlidingLog {
    /// Oldest first; times never decrease.
    entries: VecDeque<Entry>,
    /// Cost of all entries together.
    total: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Entry {
    frontier: Frontier,
    cost: u64,
}

impl Rules for SlidingLog {
    fn earliest(&mut self, policy: &Policy, cost: u64, now_us: u64) -> u64 {
        self.settle(policy, now_us);
        self.within_window(policy, cost, now_us).max(self.within_pace(policy, cost))
    }

    fn charge(&mut self, policy: &Policy, cost: u64, slot_us: u64, now_us: u64) {
        self.settle(policy, now_us);
        let frontier = Frontier::at(slot_us, now_us);
        self.total += cost;
        match self.entries.back_mut() {
            Some(newest) if newest.frontier == frontier => newest.cost += cost,
            _ => self.entries.push_back(Entry { frontier, cost }),
        }
    }

    fn remaining(&mut self, policy: &Policy, now_us: u64) -> u64 {
        self.settle(policy, now_us);
        if self.newest_us() > now_us {
            return 0;
        }
        policy.limit.saturating_sub(self.used_at(policy, now_us))
    }

    fn reset_after(&mut self, policy: &Policy, now_us: u64) -> u64 {
        self.settle(policy, now_us);
        if self.entries.is_empty() { 0 } else { self.newest_us() + policy.window_us - now_us }
    }

    /// From its own entry while that is the newest, else from the oldest: what stays then counts longer than what goes.
    fn refund(&mut self, policy: &Policy, cost: u64, taken: Taken, now_us: u64) {
        self.settle(policy, now_us);
        if taken.at_us + policy.window_us <= now_us {
            return;
        }
        let mut left = cost.min(self.total);
        self.total -= left;
        while left > 0 {
            let is_own = self.newest_us() == taken.at_us;
            let entry = if is_own { self.entries.back_mut() } else { self.entries.front_mut() };
            let Some(entry) = entry else { break };
            if entry.cost > left {
                entry.cost -= left;
                break;
            }
            left -= entry.cost;
            if is_own {
                self.entries.pop_back()
            } else {
                self.entries.pop_front()
            };
        }
    }
}

impl SlidingLog {
    /// Drops what left the window, and a log that a clock stepping back has put more than a window into the future.
    fn settle(&mut self, policy: &Policy, now_us: u64) {
        if let Some(newest) = self.entries.back()
            && newest.frontier.at_us > newest.frontier.steady(now_us) + policy.window_us
        {
            self.entries.clear();
            self.total = 0;
        }
        while let Some(oldest) = self.entries.front()
            && oldest.frontier.at_us + policy.window_us <= now_us
        {
            self.total -= oldest.cost;
            self.entries.pop_front();
        }
    }

    fn within_window(&self, policy: &Policy, cost: u64, now_us: u64) -> u64 {
        let at_us = self.newest_us().max(now_us);
        let mut used = self.used_at(policy, at_us);
        if used + cost <= policy.limit {
            return at_us;
        }
        for entry in self.live(policy, at_us) {
            used -= entry.cost;
            if used + cost <= policy.limit {
                return entry.frontier.at_us + policy.window_us;
            }
        }
        at_us
    }

    /// The same for the newest alone: as many as may go at once, within their pace. What costs more than that goes alone.
    fn within_pace(&self, policy: &Policy, cost: u64) -> u64 {
        let (most, pace_us) = (policy.at_once.max(cost), policy.pace_us());
        if pace_us == 0 {
            return 0;
        }
        let mut newer = 0;
        let full = self.entries.iter().rev().find(|entry| {
            newer += entry.cost;
            newer + cost > most
        });
        full.map_or(0, |entry| entry.frontier.at_us + pace_us)
    }

    fn newest_us(&self) -> u64 {
        self.entries.back().map_or(0, |newest| newest.frontier.at_us)
    }

    fn used_at(&self, policy: &Policy, at_us: u64) -> u64 {
        let gone = self.entries.iter().take_while(|entry| entry.frontier.at_us + policy.window_us <= at_us);
        self.total - gone.map(|entry| entry.cost).sum::<u64>()
    }

    fn live(&self, policy: &Policy, at_us: u64) -> impl Iterator<Item = &Entry> {
        self.entries.iter().skip_while(move |entry| entry.frontier.at_us + policy.window_us <= at_us)
    }
}
