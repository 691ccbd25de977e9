//! What the gate needs of a limiter: a refusal that is certain without asking, and to hear what a larger script decided.

use super::decision::Decision;
use super::denied::Version;
use super::rules::decide::{Report, Wait};
use super::{Ask, Limiter, Limits, Policy};
use crate::Key;

/// A question that is about to be sent.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    version: Option<Version>,
    at_us: u64,
}

impl Asked {
    pub(crate) fn at_us(self) -> u64 {
        self.at_us
    }
}

impl Limiter {
    /// The refusal, if it is certain: the cost can never pass, or was refused and its time has not come.
    pub(crate) fn refuse_early(&self, key: &Key, policy: &Policy, cost: u64) -> Option<Decision> {
        if cost > policy.capacity() {
            return Some(Decision::never(0, policy));
        }
        let report = self.shared.as_ref()?.denied.recall(key, policy, cost, self.clock.now_us())?;
        Some(Decision::from_report(&report, policy, false))
    }

    pub(crate) fn asked(&self, key: &Key) -> Asked {
        let version = self.shared.as_ref().map(|shared| shared.denied.version(key));
        Asked { version, at_us: self.clock.now_us() }
    }

    /// Redis decided about this key's rate in a larger script: `report`, and whether it was taken.
    pub(crate) fn note(&self, ask: &Ask, report: &Report, is_taken: bool, asked: Asked) {
        if report.wait_us > 0
            && let (Some(shared), Some(version)) = (&self.shared, asked.version)
        {
            shared.denied.remember(&ask.key, &ask.policy, ask.cost, report, (version, asked.at_us));
        }
        self.follow(&Limits(std::slice::from_ref(ask)), report, is_taken, asked.at_us);
    }

    /// Without Redis.
    pub(crate) fn check_without_redis(&self, ask: &Ask, degraded: bool) -> Decision {
        let limits = Limits(std::slice::from_ref(ask));
        let (wait, now_us) = (Wait::AtMost(0), self.clock.now_us());
        if degraded {
            return self.decide_alone(&limits, wait, now_us).into_decision();
        }
        let report = self.local.decide(&limits, wait, now_us, |policy| *policy);
        Decision::from_report(&report, &ask.policy, false)
    }
}
