//! Circuits in this process: the rules and a map.

use super::circuit::{Check, Circuit, Force, Recorded, Report, Snapshot};
use super::policy::Policy;
use super::{Answer, Ticket};
use crate::Key;
use crate::holder::Holder;
use crate::map::Map;

pub(crate) struct MemoryBreaker {
    circuits: Map<Circuit>,
}

impl MemoryBreaker {
    pub(crate) fn new(max_keys: usize) -> Self {
        MemoryBreaker { circuits: Map::new("breaker", max_keys) }
    }

    pub(crate) fn admit(&self, target: &Key, policy: &Policy, now_us: u64) -> Answer {
        self.circuits.update(target, now_us, |circuit| {
            let answer = match circuit.check(policy, now_us) {
                Check::Pass { generation, .. } => Answer::Pass(Ticket { generation, probe: None }),
                Check::Probe => {
                    let holder = Holder::random();
                    let generation = circuit.take_probe(policy, holder, now_us);
                    Answer::Pass(Ticket { generation, probe: Some(holder) })
                }
                Check::Reject { retry_after_us, reason } => Answer::Reject { retry_after_us, reason },
            };
            (answer, circuit.idle_from_us(policy, now_us))
        })
    }

    pub(crate) fn renew_probe(&self, target: &Key, policy: &Policy, holder: Holder, now_us: u64) {
        self.circuits.update(target, now_us, |circuit| {
            circuit.renew_probe(policy, holder, now_us);
            ((), circuit.idle_from_us(policy, now_us))
        });
    }

    pub(crate) fn record(&self, target: &Key, policy: &Policy, report: &Report, now_us: u64) -> Recorded {
        self.circuits.update(target, now_us, |circuit| {
            let recorded = circuit.record(policy, report, now_us);
            (recorded, circuit.idle_from_us(policy, now_us))
        })
    }

    pub(crate) fn force(&self, target: &Key, policy: &Policy, force: Option<(Force, u64)>, now_us: u64) {
        self.circuits.update(target, now_us, |circuit| {
            circuit.force(force, now_us);
            ((), circuit.idle_from_us(policy, now_us))
        });
    }

    pub(crate) fn forced_open_us(&self, target: &Key, now_us: u64) -> Option<u64> {
        self.circuits.read(target, |circuit| circuit.forced_open_us(now_us)).flatten()
    }

    pub(crate) fn view(&self, target: &Key, policy: &Policy, now_us: u64) -> Snapshot {
        self.circuits
            .read(target, |circuit| circuit.snapshot(policy, now_us))
            .unwrap_or_else(|| Circuit::default().snapshot(policy, now_us))
    }

    /// One page of targets by name, and where the next page starts. Only circuits that ever changed are worth listing.
    pub(crate) fn list(&self, after: Option<&str>, most: u32) -> (Vec<Key>, Option<String>) {
        let mut targets = Vec::new();
        self.circuits.for_each(|target, circuit| {
            if circuit.has_changed() && after.is_none_or(|after| target.as_str() > after) {
                targets.push(target.clone());
            }
        });
        targets.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        let is_last = targets.len() <= most as usize;
        targets.truncate(most as usize);
        let next = targets.last().filter(|_| !is_last).map(|target| target.as_str().to_owned());
        (targets, next)
    }
}
