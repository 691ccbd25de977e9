//! The breaker's rules, and nothing else: no clock, no lock, no I/O. `rules.lua` says the same in Redis.
//!
//! What always holds: at most `probes` leased probes are out at once, and none is needed once that many succeeded; a
//! report of an older generation changes nothing, nor does that of a call that an order let pass; a lease, an open time or
//! an order ends by itself; and a clock that is set back frees a probe rather than holding the circuit open.
//!
//! `check` only reads and `take_probe` only writes, so that a gate can ask every primitive first and charge last.

use super::closed::Closed;
use super::policy::Policy;
use super::window::{Counts, Past};
use crate::holder::Holder;

/// Callers refused because all probes are out should look again soon: a probe usually ends long before its lease.
const PROBE_RETRY_US: u64 = 1_000_000;

/// What the breaker knows about one target. The default, closed and never tripped, is what an absent key means.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Circuit {
    /// Bumped on every change of phase.
    generation: u64,
    phase: Phase,
    /// When the phase began.
    since_us: u64,
    /// Times it opened without a healthy stretch in between; each doubles the open time.
    trips: u32,
    reason: Option<Reason>,
}

#[derive(Clone, Debug, PartialEq)]
enum Phase {
    Closed(Closed),
    Open { until_us: u64 },
    HalfOpen { successes: u32, probes: Vec<Probe> },
    Forced { force: Force, until_us: u64 },
}

impl Default for Phase {
    fn default() -> Self {
        Phase::Closed(Closed::default())
    }
}

/// A probe is a leased holder: a caller that is killed or hangs gives its place back when the lease ends.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Probe {
    holder: Holder,
    since_us: u64,
    until_us: u64,
}

impl Probe {
    fn new(policy: &Policy, holder: Holder, now_us: u64) -> Probe {
        Probe { holder, since_us: now_us, until_us: now_us + policy.probe_lease_us }
    }

    /// A lease that begins later than now was written by a clock since set back: it counts as ended.
    fn is_live(&self, now_us: u64) -> bool {
        self.since_us <= now_us && now_us < self.until_us
    }
}

/// What an operator may order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// Refuse every call.
    Open,
    /// Let every call pass and count nothing.
    Closed,
}

/// Why the circuit is not simply closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Too many failures in a row.
    ConsecutiveFailures,
    /// The failure rate of the window reached its threshold.
    FailureRate,
    /// The rate of slow calls in the window reached its threshold.
    SlowRate,
    /// A probe failed, or was too slow to prove anything.
    ProbeFailed,
    /// An operator ordered it.
    Forced,
}

/// How an admitted call went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The target did its job.
    Success,
    /// The target failed.
    Failure,
    /// The call says nothing about the target: it was cancelled, or the caller was at fault.
    Ignored,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// Go ahead; nothing to write. `watched`: someone reported trouble lately, so successes are worth sending.
    Pass {
        generation: u64,
        failures: u32,
        watched: bool,
        by_order: bool,
    },
    /// Go ahead as a probe, if `take_probe` is called next.
    Probe,
    Reject {
        retry_after_us: u64,
        reason: Option<Reason>,
    },
}

/// One report. `past` are successes of the same process that it did not send before.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Report {
    pub(crate) generation: u64,
    pub(crate) probe: Option<Holder>,
    pub(crate) outcome: Outcome,
    pub(crate) slow: bool,
    /// The process that reports.
    pub(crate) reporter: Holder,
    pub(crate) past: Vec<Past>,
}

/// What a report left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) state: State,
    pub(crate) generation: u64,
    pub(crate) failures: u32,
    pub(crate) watched: bool,
    /// This very report changed the phase.
    pub(crate) changed: bool,
}

/// The phase, as said aloud: closed passes, open refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Calls pass.
    Closed,
    /// Calls are refused until the open time is over.
    Open,
    /// A few leased probes find out whether the target is back.
    HalfOpen,
    /// Calls are refused by an operator's order.
    ForcedOpen,
    /// Calls pass by an operator's order.
    ForcedClosed,
}

/// Everything worth showing of one circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) state: State,
    pub(crate) reason: Option<Reason>,
    pub(crate) generation: u64,
    pub(crate) trips: u32,
    pub(crate) failures: u32,
    pub(crate) counts: Counts,
    pub(crate) probes: u32,
    pub(crate) successes: u32,
    /// How long the phase has lasted.
    pub(crate) age_us: u64,
    /// When the next call may pass; zero if one may now.
    pub(crate) retry_after_us: u64,
}

impl Circuit {
    /// May a call go ahead? Changes nothing.
    pub(crate) fn check(&self, policy: &Policy, now_us: u64) -> Check {
        match &self.phase {
            Phase::Closed(closed) => Check::Pass {
                generation: self.generation,
                failures: closed.failures(),
                watched: closed.is_watched(policy, now_us),
                by_order: false,
            },
            Phase::Open { until_us } if self.since_us <= now_us && now_us < *until_us => {
                Check::Reject { retry_after_us: until_us - now_us, reason: self.reason }
            }
            Phase::Open { .. } => Check::Probe,
            Phase::HalfOpen { successes, probes } => {
                let live = probes.iter().filter(|probe| probe.is_live(now_us));
                if count(live.clone()) + successes < policy.probes {
                    return Check::Probe;
                }
                let until_us = live.map(|probe| probe.until_us).min().unwrap_or(now_us);
                Check::Reject { retry_after_us: (until_us - now_us).min(PROBE_RETRY_US), reason: self.reason }
            }
            Phase::Forced { .. } => match self.forced_open_us(now_us) {
                Some(retry_after_us) => Check::Reject { retry_after_us, reason: self.reason },
                None => {
                    let by_order = self.order_end_us(now_us).is_none();
                    let generation = self.generation + u64::from(!by_order);
                    Check::Pass { generation, failures: 0, watched: false, by_order }
                }
            },
        }
    }

    /// How long an order by hand refuses every call, if there is one.
    pub(crate) fn forced_open_us(&self, now_us: u64) -> Option<u64> {
        match self.phase {
            Phase::Forced { force: Force::Open, until_us } if now_us < until_us => Some(until_us - now_us),
            _ => None,
        }
    }

    /// Commits the probe that `check` offered and returns the generation it reports to.
    pub(crate) fn take_probe(&mut self, policy: &Policy, holder: Holder, now_us: u64) -> u64 {
        if let Phase::Open { .. } = self.phase {
            self.enter(Phase::HalfOpen { successes: 0, probes: Vec::new() }, now_us);
        }
        if let Phase::HalfOpen { probes, .. } = &mut self.phase {
            probes.retain(|probe| probe.is_live(now_us));
            probes.push(Probe::new(policy, holder, now_us));
        }
        self.generation
    }

    /// A probe whose call goes on keeps its place for another lease; one that lost it does not get it back.
    pub(crate) fn renew_probe(&mut self, policy: &Policy, holder: Holder, now_us: u64) {
        if let Phase::HalfOpen { probes, .. } = &mut self.phase
            && let Some(probe) = probes.iter_mut().find(|probe| probe.holder == holder && probe.is_live(now_us))
        {
            *probe = Probe::new(policy, holder, now_us);
        }
    }

    /// A report from an older generation is stale and changes nothing.
    pub(crate) fn record(&mut self, policy: &Policy, report: &Report, now_us: u64) -> Recorded {
        self.end_order(now_us);
        let before = self.generation;
        if report.generation == before {
            self.apply(policy, report, now_us);
        }
        let (failures, watched) = match self.check(policy, now_us) {
            Check::Pass { failures, watched, .. } => (failures, watched),
            Check::Probe | Check::Reject { .. } => (0, false),
        };
        let changed = self.generation != before;
        Recorded { state: self.state(), generation: self.generation, failures, watched, changed }
    }

    fn apply(&mut self, policy: &Policy, report: &Report, now_us: u64) {
        match &mut self.phase {
            Phase::Closed(closed) => {
                if let Some(reason) = closed.count(policy, report, now_us) {
                    self.trip(policy, reason, now_us);
                }
            }
            Phase::HalfOpen { successes, probes } => {
                // A probe that outlived its lease gave its place away, so only its failure is still news.
                let was_out = probes.iter().any(|probe| Some(probe.holder) == report.probe && probe.is_live(now_us));
                probes.retain(|probe| Some(probe.holder) != report.probe);
                match report.outcome {
                    Outcome::Ignored => (),
                    Outcome::Success if report.slow => self.trip(policy, Reason::ProbeFailed, now_us),
                    Outcome::Success if !was_out => (),
                    Outcome::Success if *successes + 1 < policy.probes => *successes += 1,
                    Outcome::Success => self.enter(Phase::default(), now_us),
                    Outcome::Failure => self.trip(policy, Reason::ProbeFailed, now_us),
                }
            }
            Phase::Open { .. } | Phase::Forced { .. } => (),
        }
    }

    /// Orders the circuit open or closed for a time, or back to automatic: closed, with nothing remembered.
    pub(crate) fn force(&mut self, force: Option<(Force, u64)>, now_us: u64) {
        self.end_order(now_us);
        self.trips = 0;
        self.reason = force.map(|_| Reason::Forced);
        let phase = match force {
            Some((force, for_us)) => Phase::Forced { force, until_us: now_us + for_us },
            None => Phase::default(),
        };
        self.enter(phase, now_us);
    }

    fn trip(&mut self, policy: &Policy, reason: Reason, now_us: u64) {
        let was_closed = matches!(self.phase, Phase::Closed(_));
        let healthy_us = now_us.saturating_sub(self.since_us);
        // Closed for as long as it was last open: the trouble before is another story.
        if was_closed && self.trips > 0 && healthy_us >= policy.open_time_us(self.trips) {
            self.trips = 0;
        }
        self.trips = self.trips.saturating_add(1);
        self.reason = Some(reason);
        self.enter(Phase::Open { until_us: now_us + policy.open_time_us(self.trips) }, now_us);
    }

    fn enter(&mut self, phase: Phase, now_us: u64) {
        if let Phase::Closed(_) = phase {
            self.reason = None;
        }
        self.generation += 1;
        self.since_us = now_us;
        self.phase = phase;
    }

    /// When an order ended, if one did that is still here.
    fn order_end_us(&self, now_us: u64) -> Option<u64> {
        match self.phase {
            Phase::Forced { until_us, .. } if now_us >= until_us => Some(until_us),
            _ => None,
        }
    }

    /// An order that is over leaves a closed circuit of a new generation.
    fn end_order(&mut self, now_us: u64) {
        if let Some(until_us) = self.order_end_us(now_us) {
            self.enter(Phase::default(), until_us);
        }
    }

    fn state(&self) -> State {
        match &self.phase {
            Phase::Closed(_) => State::Closed,
            Phase::Open { .. } => State::Open,
            Phase::HalfOpen { .. } => State::HalfOpen,
            Phase::Forced { force: Force::Open, .. } => State::ForcedOpen,
            Phase::Forced { force: Force::Closed, .. } => State::ForcedClosed,
        }
    }

    pub(crate) fn has_changed(&self) -> bool {
        self.generation > 0
    }

    /// From when on the circuit may be forgotten: a closed one that is reborn must not meet an old report.
    pub(crate) fn idle_from_us(&self, policy: &Policy, now_us: u64) -> u64 {
        let until_us = match self.phase {
            Phase::Open { until_us } | Phase::Forced { until_us, .. } => until_us,
            Phase::Closed(_) | Phase::HalfOpen { .. } => 0,
        };
        if *self == Circuit::default() { 0 } else { until_us.max(now_us) + policy.ttl_us }
    }

    pub(crate) fn snapshot(&self, policy: &Policy, now_us: u64) -> Snapshot {
        let mut circuit = self.clone();
        circuit.end_order(now_us);
        let mut snapshot = Snapshot {
            state: circuit.state(),
            reason: circuit.reason,
            generation: circuit.generation,
            trips: circuit.trips,
            failures: 0,
            counts: Counts::default(),
            probes: 0,
            successes: 0,
            age_us: now_us.saturating_sub(circuit.since_us),
            retry_after_us: 0,
        };
        if let Check::Reject { retry_after_us, .. } = circuit.check(policy, now_us) {
            snapshot.retry_after_us = retry_after_us;
        }
        match &circuit.phase {
            Phase::Closed(closed) => {
                snapshot.failures = closed.failures();
                snapshot.counts = closed.counts(policy, now_us);
            }
            Phase::HalfOpen { successes, probes } => {
                snapshot.successes = *successes;
                snapshot.probes = count(probes.iter().filter(|probe| probe.is_live(now_us)));
            }
            Phase::Open { .. } | Phase::Forced { .. } => (),
        }
        snapshot
    }
}

fn count<T>(items: impl Iterator<Item = T>) -> u32 {
    u32::try_from(items.count()).unwrap_or(u32::MAX)
}
