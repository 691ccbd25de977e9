//! The limiter's rules, and nothing else: no clock, no lock, no I/O. The same functions, by the same names, are in the
//! `.lua` files beside these, and a test runs both on the same histories.
//!
//! Every algorithm answers these questions: `earliest` (when could this cost pass?), `charge` (it passes at that time),
//! `remaining`, `reset_after` (until it is as if never used) and `refund`. Check, peek, reserve, several limits at once
//! and the warm local state are all made from these.
//!
//! Reservations queue: whoever comes later waits behind them. A clock that steps back (a new Redis primary) makes the
//! state move back with it, so nobody waits longer than the state itself says.

pub(crate) mod decide;
mod fixed_window;
mod gcra;
mod leaky_bucket;
mod sliding_counter;
mod sliding_log;
mod token_bucket;

use super::policy::{Algorithm, Policy};

use self::decide::{Report, Wait};
use self::fixed_window::FixedWindow;
use self::gcra::Gcra;
use self::leaky_bucket::LeakyBucket;
use self::sliding_counter::SlidingCounter;
use self::sliding_log::SlidingLog;
use self::token_bucket::TokenBucket;

/// What is known about one key. `Unused` is also what an expired key in Redis means. The larger shapes are boxed, so that
/// an entry of the map is one cache line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum State {
    #[default]
    Unused,
    Gcra(Gcra),
    TokenBucket(Box<TokenBucket>),
    LeakyBucket(Box<LeakyBucket>),
    FixedWindow(FixedWindow),
    SlidingCounter(Box<SlidingCounter>),
    SlidingLog(Box<SlidingLog>),
}

/// A charge of which something is given back: how much it was, and when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Taken {
    pub(crate) cost: u64,
    pub(crate) at_us: u64,
}

impl Taken {
    /// Units of `cost` that a bucket gives back: what refilled since cannot be given a second time.
    fn units(self, policy: &Policy, cost: u64, now_us: u64) -> u64 {
        let refilled = now_us.saturating_sub(self.at_us).saturating_mul(policy.rate.per_us);
        (cost * policy.rate.token).min((self.cost * policy.rate.token).saturating_sub(refilled))
    }
}

/// What every algorithm answers; see the file's header. `now_us` is the last argument everywhere.
trait Rules {
    /// The earliest time, not before `now`, at which `cost` could pass. `cost` is at most the capacity.
    fn earliest(&mut self, policy: &Policy, cost: u64, now_us: u64) -> u64;

    /// Takes `cost` at `slot`, which `earliest` named or a later time.
    fn charge(&mut self, policy: &Policy, cost: u64, slot_us: u64, now_us: u64);

    /// What could pass at once now.
    fn remaining(&mut self, policy: &Policy, now_us: u64) -> u64;

    /// How long until this state equals an unused one.
    fn reset_after(&mut self, policy: &Policy, now_us: u64) -> u64;

    /// Gives `cost` of what was taken back, but nothing that came back by itself meanwhile: the state is at most what
    /// it would be, had the rest alone been taken.
    fn refund(&mut self, policy: &Policy, cost: u64, taken: Taken, now_us: u64);

    /// One limit alone: charges it if the wait is not too long. The same as `decide` for one limit, in one piece.
    #[inline]
    fn decide(&mut self, policy: &Policy, cost: u64, wait: Wait, now_us: u64) -> Report {
        let slot_us = self.earliest(policy, cost, now_us);
        let wait_us = slot_us - now_us;
        if matches!(wait, Wait::AtMost(longest_us) if wait_us <= longest_us) {
            self.charge(policy, cost, slot_us, now_us);
        }
        let (remaining, reset_after_us) = (self.remaining(policy, now_us), self.reset_after(policy, now_us));
        Report { limit: 0, wait_us, remaining, reset_after_us }
    }
}

/// Runs one method of whichever algorithm the policy names. A state of another algorithm counts as unused.
macro_rules! dispatch {
    ($state:expr, $policy:expr, |$inner:ident| $body:expr) => {{
        $state.become_algorithm($policy);
        match $state {
            State::Gcra($inner) => $body,
            State::TokenBucket($inner) => $body,
            State::LeakyBucket($inner) => $body,
            State::FixedWindow($inner) => $body,
            State::SlidingCounter($inner) => $body,
            State::SlidingLog($inner) => $body,
            State::Unused => unreachable!("a state takes the policy's algorithm first"),
        }
    }};
}

impl State {
    #[inline]
    pub(crate) fn decide(&mut self, policy: &Policy, cost: u64, wait: Wait, now_us: u64) -> Report {
        dispatch!(self, policy, |inner| inner.decide(policy, cost, wait, now_us))
    }

    pub(crate) fn earliest(&mut self, policy: &Policy, cost: u64, now_us: u64) -> u64 {
        dispatch!(self, policy, |inner| inner.earliest(policy, cost, now_us))
    }

    pub(crate) fn charge(&mut self, policy: &Policy, cost: u64, slot_us: u64, now_us: u64) {
        dispatch!(self, policy, |inner| inner.charge(policy, cost, slot_us, now_us));
    }

    pub(crate) fn remaining(&mut self, policy: &Policy, now_us: u64) -> u64 {
        dispatch!(self, policy, |inner| inner.remaining(policy, now_us))
    }

    pub(crate) fn reset_after(&mut self, policy: &Policy, now_us: u64) -> u64 {
        dispatch!(self, policy, |inner| inner.reset_after(policy, now_us))
    }

    pub(crate) fn refund(&mut self, policy: &Policy, cost: u64, taken: Taken, now_us: u64) {
        let taken = Taken { cost: taken.cost.min(policy.capacity), ..taken };
        let cost = cost.min(taken.cost);
        dispatch!(self, policy, |inner| inner.refund(policy, cost, taken, now_us));
    }

    /// Makes sure that no more than `remaining` can pass now.
    pub(crate) fn lower_to(&mut self, policy: &Policy, remaining: u64, now_us: u64) {
        let excess = self.remaining(policy, now_us).saturating_sub(remaining);
        if excess > 0 {
            self.charge(policy, excess, now_us, now_us);
        }
    }

    #[inline]
    fn become_algorithm(&mut self, policy: &Policy) {
        let is_the_same = matches!(
            (&*self, policy.algorithm),
            (State::Gcra(_), Algorithm::Gcra)
                | (State::TokenBucket(_), Algorithm::TokenBucket)
                | (State::LeakyBucket(_), Algorithm::LeakyBucket)
                | (State::FixedWindow(_), Algorithm::FixedWindow)
                | (State::SlidingCounter(_), Algorithm::SlidingCounter)
                | (State::SlidingLog(_), Algorithm::SlidingLog)
        );
        if is_the_same {
            return;
        }
        *self = match policy.algorithm {
            Algorithm::Gcra => State::Gcra(Gcra::default()),
            Algorithm::TokenBucket => State::TokenBucket(Box::new(TokenBucket::full(policy))),
            Algorithm::LeakyBucket => State::LeakyBucket(Box::default()),
            Algorithm::FixedWindow => State::FixedWindow(FixedWindow::default()),
            Algorithm::SlidingCounter => State::SlidingCounter(Box::default()),
            Algorithm::SlidingLog => State::SlidingLog(Box::default()),
        };
    }
}

/// The time a state stands at: that of its last charge, which a reservation may have put into the future. `ahead_us` is
/// how far it was ahead when written; more than that means the clock has stepped back since.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Frontier {
    at_us: u64,
    ahead_us: u64,
}

impl Frontier {
    fn at(slot_us: u64, now_us: u64) -> Frontier {
        Frontier { at_us: slot_us, ahead_us: slot_us.saturating_sub(now_us) }
    }

    /// Where the state stands by today's clock.
    fn steady(self, now_us: u64) -> u64 {
        self.at_us.min(now_us + self.ahead_us)
    }
}
