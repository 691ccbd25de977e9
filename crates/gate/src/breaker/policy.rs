//! When a circuit opens, for how long, and how it finds its way back: as written, then as used.
//!
//! `Settings` are what a caller writes; `Policy` is checked and in integers, so that the rules in Rust and in Lua divide
//! nothing and round nothing. The key in Redis must outlive the longest open time, probe and call: a circuit that is
//! forgotten starts again at generation 0, where a late report must not find it.

use std::fmt::Write as _;
use std::time::Duration;

use super::window::{BUCKETS, Counts};
use crate::error::Error;

/// The most processes a quorum may ask for.
pub(crate) const MAX_QUORUM: u32 = 8;
const MAX_PROBES: u32 = 100;
const MAX_TIME: Duration = Duration::from_hours(24 * 30);

/// What a caller may choose. `Settings::default()` is a good start: five failures in a row open the circuit for 30 s,
/// then three successful probes close it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Failures in a row that open the circuit.
    pub failures: u32,
    /// Percentage of failed calls in the window that opens the circuit, 1 to 100.
    pub failure_percent: Option<u32>,
    /// Percentage of slow calls in the window that opens the circuit, 1 to 100.
    pub slow_percent: Option<u32>,
    /// A call that takes this long is slow.
    pub slow_call: Duration,
    /// Calls the window must hold before a percentage means anything.
    pub min_calls: u32,
    /// Length of the rolling window.
    pub window: Duration,
    /// A percentage opens the circuit only this long after the first sign of trouble, so that every process has had
    /// the time to send its successes too.
    pub gather: Duration,
    /// Distinct processes that must have seen trouble within the window. With more than one, each process also keeps
    /// a circuit of its own, so that the only one in trouble stops alone.
    pub quorum: u32,
    /// First open time; each repeat doubles it.
    pub open: Duration,
    /// Longest open time.
    pub open_cap: Duration,
    /// Probes let through in the whole fleet while half-open, and successes needed to close.
    pub probes: u32,
    /// A probe that did not report for this long is given up.
    pub probe_lease: Duration,
    /// The longest a call may take.
    pub longest_call: Duration,
    /// How long Redis remembers a circuit that nobody calls.
    pub ttl: Duration,
    /// How long a process may go on believing that a circuit is closed, or open, without asking. Zero asks every time.
    pub refresh: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            failures: 5,
            failure_percent: Some(50),
            slow_percent: None,
            slow_call: Duration::from_secs(10),
            min_calls: 20,
            window: Duration::from_secs(60),
            gather: Duration::from_secs(1),
            quorum: 1,
            open: Duration::from_secs(30),
            open_cap: Duration::from_mins(10),
            probes: 3,
            probe_lease: Duration::from_mins(1),
            longest_call: Duration::from_mins(1),
            ttl: Duration::from_hours(1),
            refresh: Duration::from_millis(250),
        }
    }
}

/// Checked settings, in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub(crate) failures: u32,
    /// 0 = never.
    pub(crate) failure_percent: u32,
    /// 0 = never.
    pub(crate) slow_percent: u32,
    pub(crate) slow_call_us: u64,
    pub(crate) min_calls: u32,
    pub(crate) window_us: u64,
    pub(crate) gather_us: u64,
    pub(crate) quorum: u32,
    pub(crate) open_us: u64,
    pub(crate) open_cap_us: u64,
    pub(crate) probes: u32,
    pub(crate) probe_lease_us: u64,
    pub(crate) ttl_us: u64,
    pub(crate) refresh_us: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Policy::new(&Settings::default()).expect("the default settings are valid; a test says so")
    }
}

impl Policy {
    /// Checks the settings; the error names the one that is wrong.
    ///
    /// # Errors
    /// A zero or absurd count, percentage or time, or times that contradict each other.
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        let percent = |value: Option<u32>, field| match value {
            None => Ok(0),
            Some(percent @ 1..=100) => Ok(percent),
            Some(_) => Err(Error::Policy { field, problem: "must be between 1 and 100" }),
        };
        let policy = Policy {
            failures: counted(settings.failures, u32::MAX / 2, "failures")?,
            failure_percent: percent(settings.failure_percent, "failure_percent")?,
            slow_percent: percent(settings.slow_percent, "slow_percent")?,
            slow_call_us: timed(settings.slow_call, "slow_call")?,
            min_calls: counted(settings.min_calls, u32::MAX / 2, "min_calls")?,
            window_us: timed(settings.window, "window")?,
            gather_us: micros(settings.gather, "gather")?,
            quorum: counted(settings.quorum, MAX_QUORUM, "quorum")?,
            open_us: timed(settings.open, "open")?,
            open_cap_us: timed(settings.open_cap, "open_cap")?,
            probes: counted(settings.probes, MAX_PROBES, "probes")?,
            probe_lease_us: timed(settings.probe_lease, "probe_lease")?,
            ttl_us: timed(settings.ttl, "ttl")?,
            refresh_us: micros(settings.refresh, "refresh")?,
        };
        let longest_call_us = timed(settings.longest_call, "longest_call")?;
        let wrong = |field, problem| Err(Error::Policy { field, problem });
        if policy.open_cap_us < policy.open_us {
            return wrong("open_cap", "must not be shorter than `open`");
        }
        if policy.probe_lease_us < longest_call_us {
            return wrong("probe_lease", "must not be shorter than `longest_call`, or slow probes look lost");
        }
        let must_outlive = policy.open_cap_us.max(policy.probe_lease_us).max(longest_call_us).max(policy.window_us);
        if policy.ttl_us <= must_outlive {
            return wrong("ttl", "must exceed `open_cap`, `probe_lease`, `longest_call` and `window`");
        }
        Ok(policy)
    }

    /// Width of one bucket of the window.
    pub(crate) fn bucket_us(&self) -> u64 {
        self.window_us.div_ceil(BUCKETS)
    }

    /// How long the circuit stays open the `trips`-th time in a row.
    pub(crate) fn open_time_us(&self, trips: u32) -> u64 {
        let doublings = trips.saturating_sub(1).min(32);
        self.open_us.saturating_mul(1 << doublings).min(self.open_cap_us)
    }

    pub(crate) fn reaches_failure_rate(&self, counts: Counts) -> bool {
        self.reaches(self.failure_percent, counts.failures, counts.calls)
    }

    pub(crate) fn reaches_slow_rate(&self, counts: Counts) -> bool {
        self.reaches(self.slow_percent, counts.slow, counts.calls)
    }

    fn reaches(&self, percent: u32, bad: u64, calls: u64) -> bool {
        percent > 0 && calls >= u64::from(self.min_calls) && bad * 100 >= u64::from(percent) * calls
    }

    /// Is a call that took this long slow, and does anybody care?
    pub(crate) fn is_slow(&self, latency: Duration) -> bool {
        self.slow_percent > 0 && latency.as_micros() >= u128::from(self.slow_call_us)
    }

    /// The policy as one argument of a script, in the order that `circuit_policy` in `rules.lua` reads.
    pub(crate) fn to_argument(&self) -> String {
        let mut text = String::with_capacity(96);
        let numbers = [
            u64::from(self.failures),
            u64::from(self.failure_percent),
            u64::from(self.slow_percent),
            u64::from(self.min_calls),
            self.window_us,
            self.bucket_us(),
            self.gather_us,
            u64::from(self.quorum),
            self.open_us,
            self.open_cap_us,
            u64::from(self.probes),
            self.probe_lease_us,
            self.ttl_us,
        ];
        for number in numbers {
            write!(text, "{number} ").expect("writing to a String cannot fail");
        }
        text
    }
}

fn counted(value: u32, max: u32, field: &'static str) -> Result<u32, Error> {
    if value == 0 {
        return Err(Error::Policy { field, problem: "must be at least 1" });
    }
    if value > max {
        return Err(Error::Policy { field, problem: "is too large" });
    }
    Ok(value)
}

fn timed(value: Duration, field: &'static str) -> Result<u64, Error> {
    // A tenth of a window is one bucket, and leases below a millisecond end before a reply arrives.
    if value < Duration::from_millis(1) {
        return Err(Error::Policy { field, problem: "must be at least 1ms" });
    }
    micros(value, field)
}

pub(super) fn micros(value: Duration, field: &'static str) -> Result<u64, Error> {
    if value > MAX_TIME {
        return Err(Error::Policy { field, problem: "must be at most 30 days" });
    }
    Ok(u64::try_from(value.as_micros()).unwrap_or(u64::MAX))
}
