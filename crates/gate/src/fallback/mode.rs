//! When to trust Redis: the rules, and nothing else. No clock, no lock, no I/O.
//!
//! Shared → local after several failures in a row, or when most of a second's operations failed. Of a cluster one node may
//! fail alone, and a few callers in a row may all have asked it: there the row must last for a second. Local lasts a dwell
//! that doubles while Redis keeps failing soon after a return, so a flapping Redis changes the mode rarely. Back in
//! shared mode, traffic returns over a ramp. The return is over when all replicas are back: as long as one of them decides
//! by its share, the others would give its share a second time.

/// Failures in a row that end the trust.
const FAILURES_IN_A_ROW: u32 = 5;
/// Or this many operations in a second, more than half of them failed.
const LEAST_SAMPLE: u32 = 10;
const SECOND_US: u64 = 1_000_000;
/// The least time in local mode, and what it may grow to.
pub(super) const DWELL_US: u64 = 5 * SECOND_US;
const LONGEST_DWELL_US: u64 = 40 * SECOND_US;
/// A return that holds this long forgives the failures before it, and waits no longer for the other replicas.
const SETTLED_US: u64 = 30 * SECOND_US;
const RAMP_US: u64 = 2 * SECOND_US;
const RAMP_START: f64 = 0.1;

/// What this process believes about Redis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Trust {
    mode: Mode,
    dwell_us: u64,
    is_cluster: bool,
    failures_in_a_row: u32,
    /// When the first of them was.
    failing_since_us: u64,
    second: Second,
    /// As of the last heartbeat.
    is_fleet_back: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    /// Redis decides. `since_us` is `None` from the start on, and the time of return after a local spell.
    Shared {
        since_us: Option<u64>,
    },
    Local {
        since_us: u64,
    },
}

/// Operations of the current second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Second {
    started_us: u64,
    operations: u32,
    failures: u32,
}

/// What a report changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    None,
    ToLocal,
    ToShared,
}

impl Trust {
    pub(crate) fn new(is_cluster: bool) -> Trust {
        Trust {
            mode: Mode::Shared { since_us: None },
            dwell_us: DWELL_US,
            is_cluster,
            failures_in_a_row: 0,
            failing_since_us: 0,
            second: Second::default(),
            is_fleet_back: true,
        }
    }

    /// The part of the traffic that Redis decides: 0 in local mode, growing to 1 after a return.
    pub(crate) fn share(&self, now_us: u64) -> f64 {
        match self.mode {
            Mode::Local { .. } => 0.0,
            Mode::Shared { since_us: None } => 1.0,
            Mode::Shared { since_us: Some(since_us) } => {
                let elapsed = now_us.saturating_sub(since_us).min(RAMP_US);
                RAMP_START + (1.0 - RAMP_START) * (elapsed as f64 / RAMP_US as f64)
            }
        }
    }

    /// Do all replicas ask Redis about every call again?
    pub(crate) fn is_return_over(&self, now_us: u64) -> bool {
        match self.mode {
            Mode::Shared { since_us: Some(since_us) } if now_us < since_us + SETTLED_US => {
                self.is_fleet_back && self.share(now_us) >= 1.0
            }
            Mode::Shared { .. } => true,
            Mode::Local { .. } => false,
        }
    }

    /// A heartbeat told whether every replica, this one included, asks Redis about every call.
    pub(crate) fn heard(&mut self, is_fleet_back: bool) {
        self.is_fleet_back = is_fleet_back;
    }

    pub(crate) fn is_local(&self) -> bool {
        matches!(self.mode, Mode::Local { .. })
    }

    /// Is it time to try Redis again?
    pub(crate) fn is_probe_due(&self, now_us: u64) -> bool {
        matches!(self.mode, Mode::Local { since_us } if now_us >= since_us + self.dwell_us)
    }

    pub(crate) fn succeeded(&mut self, now_us: u64) {
        self.failures_in_a_row = 0;
        self.count(now_us, 0);
    }

    pub(crate) fn failed(&mut self, now_us: u64) -> Change {
        if self.failures_in_a_row == 0 {
            self.failing_since_us = now_us;
        }
        self.failures_in_a_row += 1;
        self.count(now_us, 1);
        let is_long_enough = !self.is_cluster || now_us >= self.failing_since_us + SECOND_US;
        let in_a_row = self.failures_in_a_row >= FAILURES_IN_A_ROW && is_long_enough;
        let most_failed = self.second.operations >= LEAST_SAMPLE && self.second.failures * 2 > self.second.operations;
        if self.is_local() || !(in_a_row || most_failed) {
            return Change::None;
        }
        self.leave(now_us);
        Change::ToLocal
    }

    /// A probe got through: Redis decides again, little by little.
    pub(crate) fn probe_succeeded(&mut self, now_us: u64) -> Change {
        if !self.is_probe_due(now_us) {
            return Change::None;
        }
        self.mode = Mode::Shared { since_us: Some(now_us) };
        self.failures_in_a_row = 0;
        self.second = Second::default();
        Change::ToShared
    }

    fn leave(&mut self, now_us: u64) {
        self.dwell_us = match self.mode {
            Mode::Shared { since_us: Some(since_us) } if now_us < since_us + SETTLED_US => {
                (self.dwell_us * 2).min(LONGEST_DWELL_US)
            }
            Mode::Shared { .. } | Mode::Local { .. } => DWELL_US,
        };
        self.mode = Mode::Local { since_us: now_us };
        self.is_fleet_back = false;
    }

    fn count(&mut self, now_us: u64, failures: u32) {
        if now_us >= self.second.started_us + SECOND_US {
            self.second = Second { started_us: now_us, operations: 0, failures: 0 };
        }
        self.second.operations += 1;
        self.second.failures += failures;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = SECOND_US;

    #[test]
    fn one_node_of_three_that_fails_does_not_cost_a_cluster_its_trust_and_most_of_them_do() {
        let mut trust = Trust::new(true);
        // Callers that are held up by one node are told so one after the other.
        for round in 0..20 {
            (0..32).for_each(|_| trust.succeeded(round * S / 20));
            assert!((0..16).all(|_| trust.failed(round * S / 20) == Change::None), "round {round}");
        }
        let changes: Vec<Change> = (0..700).map(|_| trust.failed(S - 1)).collect();
        assert!(changes.contains(&Change::ToLocal));
    }

    /// Fewer than ten operations a second were never enough to tell.
    #[test]
    fn a_quiet_cluster_of_which_nobody_answers_loses_the_trust_within_seconds() {
        let mut trust = Trust::new(true);
        trust.succeeded(0);
        let changes: Vec<Change> = (1..=10).map(|half| trust.failed(half * S / 2)).collect();
        assert_eq!(changes.iter().position(|change| *change == Change::ToLocal), Some(4), "{changes:?}");
        let mut trust = Trust::new(true);
        for second in 0..20 {
            trust.succeeded(second * S);
            assert!((0..4).all(|_| trust.failed(second * S) == Change::None), "one node of it");
        }
    }

    fn fail_until_local(trust: &mut Trust, now_us: u64) {
        for _ in 0..FAILURES_IN_A_ROW {
            trust.failed(now_us);
        }
        assert!(trust.is_local());
    }

    #[test]
    fn a_few_failures_in_a_row_end_the_trust_and_a_success_between_them_keeps_it() {
        let mut trust = Trust::new(false);
        for _ in 0..FAILURES_IN_A_ROW - 1 {
            assert_eq!(trust.failed(0), Change::None);
        }
        trust.succeeded(0);
        assert_eq!(trust.failed(0), Change::None);
        assert!(!trust.is_local());
        fail_until_local(&mut trust, 0);
    }

    #[test]
    fn a_second_of_mostly_failures_ends_the_trust_even_when_some_succeed() {
        let mut trust = Trust::new(false);
        let mut changes = Vec::new();
        for _ in 0..LEAST_SAMPLE {
            trust.succeeded(0);
            changes.push(trust.failed(0));
            changes.push(trust.failed(0));
        }
        assert_eq!(changes.iter().filter(|change| **change == Change::ToLocal).count(), 1);
    }

    #[test]
    fn local_mode_lasts_the_dwell_and_traffic_returns_over_a_ramp() {
        let mut trust = Trust::new(false);
        assert_eq!(trust.share(0), 1.0);
        fail_until_local(&mut trust, S);
        assert_eq!(trust.share(S), 0.0);
        assert_eq!(trust.probe_succeeded(S + DWELL_US - 1), Change::None);
        assert_eq!(trust.probe_succeeded(S + DWELL_US), Change::ToShared);
        let back = S + DWELL_US;
        assert_eq!(trust.share(back), 0.1);
        assert!(trust.share(back + RAMP_US / 2) > 0.5);
        assert_eq!(trust.share(back + RAMP_US), 1.0);
    }

    #[test]
    fn a_return_is_over_when_the_last_replica_is_back_or_after_a_while() {
        let mut trust = Trust::new(false);
        assert!(trust.is_return_over(0));
        fail_until_local(&mut trust, 0);
        trust.probe_succeeded(DWELL_US);
        let ramped = DWELL_US + RAMP_US;
        assert!(!trust.is_return_over(ramped), "what was heard before the outage counts no more");
        trust.heard(false);
        assert!(!trust.is_return_over(ramped));
        assert!(trust.is_return_over(DWELL_US + SETTLED_US));
        trust.heard(true);
        assert!(!trust.is_return_over(ramped - 1), "its own ramp comes first");
        assert!(trust.is_return_over(ramped));
    }

    #[test]
    fn a_flapping_redis_changes_the_mode_at_most_twelve_times_a_minute() {
        let (mut trust, mut changes) = (Trust::new(false), 0);
        for now_us in (0..60 * S).step_by(10_000) {
            let is_up = (now_us / 200_000) % 2 == 0;
            let change = match (trust.is_local(), is_up) {
                (false, true) => {
                    trust.succeeded(now_us);
                    Change::None
                }
                (false, false) => trust.failed(now_us),
                (true, true) => trust.probe_succeeded(now_us),
                (true, false) => Change::None,
            };
            changes += u32::from(change != Change::None);
        }
        assert!((2..=12).contains(&changes), "{changes} changes");
    }
}
