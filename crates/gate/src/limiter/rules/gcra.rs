//! GCRA: one timestamp, the time at which the key will be full again if nobody calls.
//!
//! The timestamp is exact: whole microseconds and a fraction in units of the rate, so that no call is lost to rounding.

use super::super::policy::{Policy, Span};
use super::decide::{Report, Wait};
use super::{Rules, Taken};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Gcra {
    /// A moment: the span since the epoch.
    full_at: Span,
    /// How far beyond the tolerance reservations had pushed `full_at` when it was written.
    ahead_us: u64,
}

impl Rules for Gcra {
    #[inline]
    fn earliest(&mut self, policy: &Policy, cost: u64, now_us: u64) -> u64 {
        let full_at = from(self.steady(policy, now_us), now_us).plus(policy.rate.span(cost), policy);
        full_at.minus(policy.rate.full, policy).rounded_up().max(now_us)
    }

    #[inline]
    fn charge(&mut self, policy: &Policy, cost: u64, slot_us: u64, now_us: u64) {
        let full_at = from(self.steady(policy, now_us), slot_us).plus(policy.rate.span(cost), policy);
        let ahead_us = full_at.minus(policy.rate.full, policy).rounded_up().saturating_sub(now_us);
        *self = Gcra { full_at, ahead_us };
    }

    #[inline]
    fn remaining(&mut self, policy: &Policy, now_us: u64) -> u64 {
        left(from(self.steady(policy, now_us), now_us), policy, now_us)
    }

    #[inline]
    fn reset_after(&mut self, policy: &Policy, now_us: u64) -> u64 {
        self.steady(policy, now_us).rounded_up().saturating_sub(now_us)
    }

    /// The same as `earliest`, `charge`, `remaining` and `reset_after` one after the other; what passes at once, or is
    /// refused, needs the state to be read only once.
    #[inline]
    fn decide(&mut self, policy: &Policy, cost: u64, wait: Wait, now_us: u64) -> Report {
        let before = from(self.steady(policy, now_us), now_us);
        let after = before.plus(policy.rate.span(cost), policy);
        let slot_us = after.minus(policy.rate.full, policy).rounded_up().max(now_us);
        let wait_us = slot_us - now_us;
        let full_at = match wait {
            Wait::AtMost(_) if wait_us == 0 => {
                *self = Gcra { full_at: after, ahead_us: 0 };
                after
            }
            Wait::AtMost(longest_us) if wait_us <= longest_us => {
                self.charge(policy, cost, slot_us, now_us);
                from(self.steady(policy, now_us), now_us)
            }
            Wait::AtMost(_) | Wait::Peek => before,
        };
        let (remaining, reset_after_us) = (left(full_at, policy, now_us), full_at.rounded_up() - now_us);
        Report { limit: 0, wait_us, remaining, reset_after_us }
    }

    fn refund(&mut self, policy: &Policy, cost: u64, taken: Taken, now_us: u64) {
        let units = taken.units(policy, cost, now_us);
        self.full_at = self.steady(policy, now_us).minus(policy.rate.span_of(units), policy);
    }
}

impl Gcra {
    /// `full_at`, taken back with a clock that stepped back, and with a fraction this policy's rate understands.
    #[inline]
    fn steady(&self, policy: &Policy, now_us: u64) -> Span {
        let latest = Span { us: now_us + self.ahead_us, fraction: 0 }.plus(policy.rate.full, policy);
        let mut full_at = self.full_at;
        if full_at.fraction >= policy.rate.per_us {
            full_at.fraction = 0;
        }
        full_at.min(latest)
    }
}

/// What can pass at `now_us` if the key is full again at `full_at`, which is not before it.
#[inline]
fn left(full_at: Span, policy: &Policy, now_us: u64) -> u64 {
    let empty_at = Span { us: now_us, fraction: 0 }.plus(policy.rate.full, policy);
    if full_at >= empty_at {
        return 0;
    }
    let units = (empty_at.us - full_at.us) * policy.rate.per_us + empty_at.fraction - full_at.fraction;
    policy.rate.tokens(units)
}

/// The moment itself, or `us` if that is later.
#[inline]
fn from(moment: Span, us: u64) -> Span {
    if moment.us < us { Span { us, fraction: 0 } } else { moment }
}

impl Span {
    #[inline]
    fn plus(self, other: Span, policy: &Policy) -> Span {
        let fraction = self.fraction + other.fraction;
        let carry = u64::from(fraction >= policy.rate.per_us);
        Span { us: self.us + other.us + carry, fraction: fraction - carry * policy.rate.per_us }
    }

    #[inline]
    fn minus(self, other: Span, policy: &Policy) -> Span {
        let borrow = u64::from(other.fraction > self.fraction);
        match self.us.checked_sub(other.us + borrow) {
            Some(us) => Span { us, fraction: self.fraction + borrow * policy.rate.per_us - other.fraction },
            None => Span::default(),
        }
    }

    #[inline]
    fn rounded_up(self) -> u64 {
        self.us + u64::from(self.fraction > 0)
    }
}
