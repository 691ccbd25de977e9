//! GCRA: one timestamp, the time at which the key will be full again if nobody calls.
//!
//! The timestamp is exact: whole microseconds and a fraction in units of the rate, so that no call is lost to rounding.

use super::super::policy::Policy;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Gcra {
    full_at: Moment,
    /// How far beyond the tolerance reservations had pushed `full_at` when it was written.
    ahead_us: u64,
}

/// Microseconds and `fraction / per_us` of one more.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
struct Moment {
    us: u64,
    fraction: u64,
}

impl Gcra {
    pub(super) fn earliest(&self, policy: &Policy, cost: u64, now_us: u64) -> u64 {
        let full_at = self.steady(policy, now_us).max(now_us).plus(policy, cost * policy.rate.token);
        full_at.minus(policy, policy.capacity_units()).rounded_up().max(now_us)
    }

    pub(super) fn charge(&mut self, policy: &Policy, cost: u64, slot_us: u64, now_us: u64) {
        let full_at = self.steady(policy, now_us).max(slot_us).plus(policy, cost * policy.rate.token);
        let ahead_us = full_at.minus(policy, policy.capacity_units()).rounded_up().saturating_sub(now_us);
        *self = Gcra { full_at, ahead_us };
    }

    pub(super) fn remaining(&self, policy: &Policy, now_us: u64) -> u64 {
        let empty_at = Moment { us: now_us, fraction: 0 }.plus(policy, policy.capacity_units());
        let full_at = self.steady(policy, now_us).max(now_us);
        if full_at >= empty_at {
            return 0;
        }
        let units = (empty_at.us - full_at.us) * policy.rate.per_us + empty_at.fraction - full_at.fraction;
        units / policy.rate.token
    }

    pub(super) fn reset_after(&self, policy: &Policy, now_us: u64) -> u64 {
        self.steady(policy, now_us).rounded_up().saturating_sub(now_us)
    }

    pub(super) fn refund(&mut self, policy: &Policy, cost: u64, now_us: u64) {
        let units = (cost * policy.rate.token).min(policy.capacity_units());
        self.full_at = self.steady(policy, now_us).minus(policy, units);
    }

    /// `full_at`, taken back with a clock that stepped back, and with a fraction this policy's rate understands.
    fn steady(&self, policy: &Policy, now_us: u64) -> Moment {
        let latest = Moment { us: now_us + self.ahead_us, fraction: 0 }.plus(policy, policy.capacity_units());
        let mut full_at = self.full_at;
        if full_at.fraction >= policy.rate.per_us {
            full_at.fraction = 0;
        }
        if full_at > latest { latest } else { full_at }
    }
}

impl Moment {
    fn max(self, us: u64) -> Moment {
        if self.us < us { Moment { us, fraction: 0 } } else { self }
    }

    fn plus(self, policy: &Policy, units: u64) -> Moment {
        let units = self.fraction + units;
        Moment { us: self.us + units / policy.rate.per_us, fraction: units % policy.rate.per_us }
    }

    fn minus(self, policy: &Policy, units: u64) -> Moment {
        let (us, fraction) = (units / policy.rate.per_us, units % policy.rate.per_us);
        let borrow = u64::from(fraction > self.fraction);
        match self.us.checked_sub(us + borrow) {
            Some(us) => Moment { us, fraction: self.fraction + borrow * policy.rate.per_us - fraction },
            None => Moment::default(),
        }
    }

    fn rounded_up(self) -> u64 {
        self.us + u64::from(self.fraction > 0)
    }
}
