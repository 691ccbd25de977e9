//! What the gate needs of a limiter: a refusal that is certain without asking, and to hear what a larger script decided.

use std::time::Duration;

use super::decision::{Decision, Ruling};
use super::denied::Version;
use super::rules::decide::{Report, Wait};
use super::{Ask, Limiter, Limits};

/// A question that is about to be sent.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    version: Option<Version>,
    at_us: u64,
    is_held: bool,
}

impl Limiter {
    /// The refusal, if it is certain: the cost can never pass, or was refused and its time is not near.
    pub(crate) fn refuse_early(&self, ask: &Ask, ahead_us: u64) -> Option<Decision> {
        if ask.cost > ask.policy.capacity() {
            return Some(Decision::never(0, &ask.policy));
        }
        let report = self.shared.as_ref()?.denied.recall(&ask.key, &ask.policy, ask.cost, self.clock.now_us())?;
        let decision = Ruling::new(&report, &ask.policy, ahead_us, false).decision;
        (!decision.is_allowed()).then_some(decision)
    }

    /// Redis is about to be asked. A refusal: this replica's share is spent while traffic returns to Redis.
    pub(crate) fn asked(&self, ask: &Ask, ahead_us: u64) -> Result<Asked, Decision> {
        let (version, at_us) =
            (self.shared.as_ref().map(|shared| shared.denied.version(&ask.key)), self.clock.now_us());
        let held = self.hold_share(&Limits(std::slice::from_ref(ask)), Wait::AtMost(ahead_us), at_us);
        let is_held = !held?.is_empty();
        Ok(Asked { version, at_us, is_held })
    }

    /// Redis has not taken it: the place in the share is free again.
    pub(crate) fn let_go_of(&self, ask: &Ask, asked: Asked) {
        if asked.is_held {
            self.let_go(std::slice::from_ref(ask), asked.at_us, self.clock.now_us());
        }
    }

    /// Redis decided about this key's rate in a larger script: `report`, and whether it was taken.
    pub(crate) fn note(&self, ask: &Ask, report: &Report, is_taken: bool, asked: Asked) {
        if !is_taken
            && report.wait_us > 0
            && let (Some(shared), Some(version)) = (&self.shared, asked.version)
        {
            shared.denied.remember(&ask.key, &ask.policy, ask.cost, report, (version, asked.at_us));
        }
        let alone = std::slice::from_ref(ask);
        let held = if asked.is_held { alone } else { &[] };
        self.follow(&Limits(alone), report, is_taken, held, self.clock.now_us());
    }

    /// Without Redis.
    pub(crate) fn check_without_redis(&self, ask: &Ask, ahead_us: u64, degraded: bool) -> Ruling {
        self.decide_without_redis(ask, Wait::AtMost(ahead_us), ahead_us, degraded)
    }

    /// Without Redis, counting nothing.
    pub(crate) fn peek_without_redis(&self, ask: &Ask, ahead_us: u64, degraded: bool) -> Ruling {
        self.decide_without_redis(ask, Wait::Peek, ahead_us, degraded)
    }

    fn decide_without_redis(&self, ask: &Ask, wait: Wait, ahead_us: u64, degraded: bool) -> Ruling {
        if ask.cost > ask.policy.capacity() {
            return Ruling { decision: Decision::never(0, &ask.policy), delay: Duration::ZERO };
        }
        let (limits, now_us) = (Limits(std::slice::from_ref(ask)), self.clock.now_us());
        if degraded {
            return self.decide_alone(&limits, wait, now_us).into_ruling(ahead_us);
        }
        let report = self.local.decide(&limits, wait, now_us, |policy| *policy);
        Ruling::new(&report, &ask.policy, ahead_us, false)
    }
}

#[cfg(feature = "bench")]
impl Limiter {
    pub(crate) fn bare_check(&self, key: &crate::Key, policy: &super::Policy) -> redis::Cmd {
        self.shared.as_ref().map(|shared| shared.bare_check(key, policy)).unwrap_or_default()
    }

    pub(crate) fn bare_name(&self, key: &crate::Key, policy: &super::Policy) -> String {
        self.shared.as_ref().map(|shared| shared.bare_name(key, policy)).unwrap_or_default()
    }
}
