//! A closed circuit counts, and says when it must open: the rules, and nothing else.
//!
//! Only bad news opens it. Failures in a row open it at once; a rate does when it is reached, the window holds enough
//! calls and the fleet has had the time to report. Neither does before a quorum of processes brought bad news.

use super::circuit::{Outcome, Reason, Report};
use super::policy::{MAX_QUORUM, Policy};
use super::window::{Counts, Window};
use crate::Holder;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Closed {
    /// In a row, over the fleet.
    failures: u32,
    window: Window,
    /// When the window got its first call after being empty.
    watched_us: u64,
    /// Who brought bad news, and when last: one process with a broken network is not a broken target.
    reporters: Vec<(Holder, u64)>,
}

impl Closed {
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    pub(super) fn counts(&self, policy: &Policy, now_us: u64) -> Counts {
        self.window.total(policy.bucket_us(), now_us)
    }

    /// Did anybody report trouble lately, so that successes are worth sending?
    pub(super) fn is_watched(&self, policy: &Policy, now_us: u64) -> bool {
        self.failures > 0 || !self.window.is_empty(policy.bucket_us(), now_us)
    }

    /// Counts a report, and says why the circuit must open, if it must. Only bad news opens it.
    pub(super) fn count(&mut self, policy: &Policy, report: &Report, now_us: u64) -> Option<Reason> {
        if report.outcome == Outcome::Ignored && report.past.is_empty() {
            // Says nothing, so it changes nothing: not even since when the circuit is watched.
            return None;
        }
        let width_us = policy.bucket_us();
        if self.window.is_empty(width_us, now_us) {
            self.watched_us = now_us;
        }
        for past in &report.past {
            self.window.add(width_us, now_us, past.age, Counts { calls: past.calls, failures: 0, slow: 0 });
            self.failures = 0;
        }
        let failed = match report.outcome {
            Outcome::Ignored => return None,
            Outcome::Success => false,
            Outcome::Failure => true,
        };
        self.failures = if failed { self.failures + 1 } else { 0 };
        self.window.add(width_us, now_us, 0, Counts { calls: 1, failures: failed.into(), slow: report.slow.into() });
        if !failed && !report.slow {
            return None;
        }
        self.heard_from(policy, report.reporter, now_us);
        self.verdict(policy, now_us)
    }

    /// Keeps as many reporters as the largest quorum needs, the latest ones.
    fn heard_from(&mut self, policy: &Policy, reporter: Holder, now_us: u64) {
        self.reporters
            .retain(|(known, at_us)| *known != reporter && *at_us <= now_us && now_us - at_us < policy.window_us);
        if self.reporters.len() >= MAX_QUORUM as usize {
            self.reporters.remove(0);
        }
        self.reporters.push((reporter, now_us));
    }

    fn verdict(&self, policy: &Policy, now_us: u64) -> Option<Reason> {
        if self.reporters.len() < policy.quorum as usize {
            return None;
        }
        if self.failures >= policy.failures {
            return Some(Reason::ConsecutiveFailures);
        }
        if now_us.saturating_sub(self.watched_us) < policy.gather_us {
            return None;
        }
        let total = self.window.total(policy.bucket_us(), now_us);
        if policy.reaches_failure_rate(total) {
            Some(Reason::FailureRate)
        } else if policy.reaches_slow_rate(total) {
            Some(Reason::SlowRate)
        } else {
            None
        }
    }
}
