//! A pass: the right to one call, and the duty to say how it went.

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;

use super::{Gate, Policy};
use crate::Key;
use crate::breaker::{self, Outcome, Tickets};
use crate::clock::micros;
use crate::limiter::{Decision, Ruling};
use crate::semaphore::Permit;

/// The call may go ahead. Hand it back with [`Pass::exit`]; dropping it counts as ignored and frees its permit.
#[must_use = "a pass that is dropped says that the call was never made"]
pub struct Pass {
    gate: Gate,
    target: Key,
    policy: Policy,
    parts: Option<Parts>,
    started_us: u64,
    delay: Duration,
    rate: Option<Decision>,
    degraded: bool,
}

/// What a pass holds.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) circuit: Option<breaker::Pass>,
    pub(super) permit: Option<Permit>,
}

/// What is left to do at exit, taken out of the parts so that none of them acts on its own.
pub(super) struct Duties {
    pub(super) tickets: Option<Tickets>,
    pub(super) permit: Option<Permit>,
}

impl Pass {
    pub(super) fn new(
        gate: Gate,
        target: Key,
        policy: Policy,
        parts: Parts,
        rate: Option<Ruling>,
        degraded: bool,
    ) -> Pass {
        let delay = rate.map_or(Duration::ZERO, |rate| rate.delay);
        let started_us = gate.now_us() + micros(delay);
        let rate = rate.map(|rate| rate.decision);
        Pass { gate, target, policy, parts: Some(parts), started_us, delay, rate, degraded }
    }

    pub(super) fn gate(&self) -> &Gate {
        &self.gate
    }

    pub(super) fn policy(&self) -> &Policy {
        &self.policy
    }

    pub fn target(&self) -> &Key {
        &self.target
    }

    /// The call's slot of the rate begins after this long; zero, unless the policy looks [ahead](Policy::ahead).
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// What the rate limit said, if the policy has one.
    pub fn rate(&self) -> Option<&Decision> {
        self.rate.as_ref()
    }

    /// Was it decided without Redis?
    pub fn is_degraded(&self) -> bool {
        self.degraded
    }

    /// Is this one of the few calls that find out whether the target is back?
    pub fn is_probe(&self) -> bool {
        self.parts.as_ref().and_then(|parts| parts.circuit.as_ref()).is_some_and(breaker::Pass::is_probe)
    }

    /// Did the permit's lease end before it was renewed? Then somebody else may hold the place.
    pub fn is_lost(&self) -> bool {
        self.permit().is_some_and(Permit::is_lost)
    }

    /// Resolves when the permit's lease is lost; never, if the policy has no concurrency limit.
    pub async fn lost(&self) {
        match self.permit() {
            Some(permit) => permit.lost().await,
            None => std::future::pending().await,
        }
    }

    /// Reports the call, which took from its slot until now, and frees its permit, in one round trip.
    pub async fn exit(self, outcome: Outcome) {
        let held_us = self.gate.now_us().saturating_sub(self.started_us);
        self.exit_with(outcome, Duration::from_micros(held_us)).await;
    }

    /// Reports the call and how long it took, and frees its permit. Once begun it runs to its end.
    pub async fn exit_with(mut self, outcome: Outcome, latency: Duration) {
        if let Some(word) = self.leave_here(outcome, latency) {
            self.gate.tasks().run_to_end(word).await;
        }
    }

    /// What is left to do in Redis, if anything. Boxed: it is large, and whoever holds a pass would carry it.
    fn leave_here(&mut self, outcome: Outcome, latency: Duration) -> Option<BoxFuture<'static, ()>> {
        let duties = self.take_duties()?;
        let word = self.gate.leave_here(&self.target, &self.policy, duties, outcome, latency)?;
        let (gate, target, policy) = (self.gate.clone(), self.target.clone(), self.policy.clone());
        Some(Box::pin(async move { gate.send(&target, &policy, word).await }))
    }

    fn permit(&self) -> Option<&Permit> {
        self.parts.as_ref()?.permit.as_ref()
    }

    pub(super) fn take_duties(&mut self) -> Option<Duties> {
        let parts = self.parts.take()?;
        Some(Duties { tickets: parts.circuit.map(breaker::Pass::take_tickets), permit: parts.permit })
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        // Outside a runtime nothing can be sent: each part does what it can, and leases end by themselves.
        if self.parts.is_none() || Handle::try_current().is_err() {
            return;
        }
        if let Some(word) = self.leave_here(Outcome::Ignored, Duration::ZERO) {
            self.gate.tasks().spawn_draining(word);
        }
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("target", &self.target).field("degraded", &self.degraded).finish_non_exhaustive()
    }
}
