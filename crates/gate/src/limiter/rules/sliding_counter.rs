//! Sliding counter: this window's count plus the part of the last window's that is still in view.
//!
//! It assumes that the last window's calls were spread evenly. The part is taken in steps of a millionth of the window
//! and rounded up, so rounding never lets a call more through.

use super::super::policy::Policy;
use super::{Frontier, Rules, Taken};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SlidingCounter {
    current: u64,
    previous: u64,
    /// Also says which window is the current one.
    frontier: Frontier,
}

/// The counts as seen from one moment.
#[derive(Clone, Copy)]
struct View {
    start_us: u64,
    current: u64,
    previous: u64,
}

impl Rules for SlidingCounter {
    fn earliest(&mut self, policy: &Policy, cost: u64, now_us: u64) -> u64 {
        let mut at_us = self.frontier.steady(now_us).max(now_us);
        loop {
            let view = self.view_at(policy, at_us, now_us);
            if let Some(free) = policy.limit.checked_sub(cost + view.current) {
                // The last window's part may weigh `free`: from which step on does it?
                let steps = steps(policy);
                let part = (free * steps).checked_div(view.previous).map_or(steps, |part| part.min(steps));
                let from_us = view.start_us + (steps - part) * policy.step_us();
                if from_us < view.start_us + policy.window_us {
                    return from_us.max(at_us);
                }
            }
            at_us = view.start_us + policy.window_us;
        }
    }

    fn charge(&mut self, policy: &Policy, cost: u64, slot_us: u64, now_us: u64) {
        let view = self.view_at(policy, slot_us, now_us);
        *self = SlidingCounter {
            current: view.current + cost,
            previous: view.previous,
            frontier: Frontier::at(slot_us, now_us),
        };
    }

    fn remaining(&mut self, policy: &Policy, now_us: u64) -> u64 {
        if self.frontier.steady(now_us) > now_us {
            return 0;
        }
        let view = self.view_at(policy, now_us, now_us);
        let steps = steps(policy);
        let part = steps - (now_us - view.start_us) / policy.step_us();
        policy.limit.saturating_sub(view.current + (view.previous * part).div_ceil(steps))
    }

    fn reset_after(&mut self, policy: &Policy, now_us: u64) -> u64 {
        let at_us = self.frontier.steady(now_us).max(now_us);
        let view = self.view_at(policy, at_us, now_us);
        let windows = if view.current > 0 { 2 } else { u64::from(view.previous > 0) };
        if windows == 0 { at_us - now_us } else { view.start_us + windows * policy.window_us - now_us }
    }

    /// In the next window a charge counts in part only; nothing is given back then, which is the safe side.
    fn refund(&mut self, policy: &Policy, cost: u64, taken: Taken, now_us: u64) {
        let at_us = self.frontier.steady(now_us).max(now_us);
        let view = self.view_at(policy, at_us, now_us);
        if taken.at_us / policy.window_us != at_us / policy.window_us {
            return;
        }
        *self = SlidingCounter {
            current: view.current.saturating_sub(cost),
            previous: view.previous,
            frontier: Frontier::at(at_us, now_us),
        };
    }
}

impl SlidingCounter {
    fn view_at(&self, policy: &Policy, at_us: u64, now_us: u64) -> View {
        let start_us = at_us - at_us % policy.window_us;
        let stood_at_us = self.frontier.steady(now_us);
        let written_us = stood_at_us - stood_at_us % policy.window_us;
        let (current, previous) = if written_us == start_us {
            (self.current, self.previous)
        } else if written_us + policy.window_us == start_us {
            (0, self.current)
        } else {
            (0, 0)
        };
        View { start_us, current, previous }
    }
}

fn steps(policy: &Policy) -> u64 {
    policy.window_us.div_ceil(policy.step_us())
}
