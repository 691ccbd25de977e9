//! What the limiter answers. A refusal is an answer.

use std::time::Duration;

use super::policy::Policy;
use super::rules::decide::Report;

/// The answer to check and peek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    pub verdict: Verdict,
    /// The limit this answer is about: its number in the call (0 when there is one), its size, what is left of it now.
    pub rule: usize,
    pub limit: u64,
    pub remaining: u64,
    /// Until the limit is as if never used.
    pub reset_after: Duration,
    /// Decided by this process alone, because Redis could not be asked.
    pub degraded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allowed,
    /// It would pass after this time, if nobody else came.
    Denied {
        retry_after: Duration,
    },
    /// The cost is above what the limit holds when full: waiting does not help.
    Never,
}

/// The answer to reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    pub slot: Slot,
    pub rule: usize,
    pub degraded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Yours: go ahead after the delay.
    Taken { delay: Duration },
    /// The next slot is later than the longest wait; nothing was taken.
    TooFar { delay: Duration },
    /// The cost is above what the limit holds when full.
    Never,
}

/// What the gate hears of a rate: the decision, and how long a call that is let in waits for its slot.
#[derive(Clone, Copy)]
pub(crate) struct Ruling {
    pub(crate) decision: Decision,
    pub(crate) delay: Duration,
}

impl Ruling {
    /// A slot that is at most `ahead_us` away is good; one that is farther is to be asked for when it is that near.
    pub(crate) fn new(report: &Report, policy: &Policy, ahead_us: u64, degraded: bool) -> Ruling {
        let wait_us = report.wait_us.saturating_sub(ahead_us);
        let delay = if wait_us == 0 { Duration::from_micros(report.wait_us) } else { Duration::ZERO };
        Ruling { decision: Decision::from_report(&Report { wait_us, ..*report }, policy, degraded), delay }
    }
}

impl Decision {
    #[inline]
    pub fn is_allowed(&self) -> bool {
        self.verdict == Verdict::Allowed
    }

    /// When to come again; `None` if allowed, and if it can never pass.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.verdict {
            Verdict::Denied { retry_after } => Some(retry_after),
            Verdict::Allowed | Verdict::Never => None,
        }
    }

    #[inline]
    pub(crate) fn from_report(report: &Report, policy: &Policy, degraded: bool) -> Decision {
        Decision {
            verdict: match report.wait_us {
                0 => Verdict::Allowed,
                wait_us => Verdict::Denied { retry_after: Duration::from_micros(wait_us) },
            },
            rule: report.limit,
            limit: policy.capacity(),
            remaining: report.remaining,
            reset_after: Duration::from_micros(report.reset_after_us),
            degraded,
        }
    }

    pub(crate) fn never(rule: usize, policy: &Policy) -> Decision {
        let (limit, reset_after) = (policy.capacity(), Duration::ZERO);
        Decision { verdict: Verdict::Never, rule, limit, remaining: 0, reset_after, degraded: false }
    }

    /// What a rule that is open or closed without Redis answers: all of the limit remains where all pass.
    pub(super) fn fixed(verdict: Verdict, rule: usize, policy: &Policy) -> Decision {
        let (limit, reset_after) = (policy.capacity(), Duration::ZERO);
        let remaining = if verdict == Verdict::Allowed { limit } else { 0 };
        Decision { verdict, rule, limit, remaining, reset_after, degraded: true }
    }
}
