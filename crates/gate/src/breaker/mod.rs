//! Breaker: stop calling a target that fails, for the whole fleet.
//!
//! Ask [`Breaker::admit`] before a call and report with [`Pass::record`] after it. A closed, healthy circuit costs no
//! write and at most one question per `refresh`: see `ledger.rs` for how successes are still counted, and how exactly.
//! A pass that is dropped counts as ignored, and a probe among them gives its place back; one whose holder was killed
//! gives it back when its lease ends. No lock is held around the call.
//!
//! # Without Redis
//! Each process keeps a circuit of its own: a failing target is found by each process for itself, and each sends its own
//! probes. A circuit that was open, also by order, stays open to the end of its time in the processes that heard of it; an
//! order to close ends with Redis. A report for a pass that Redis gave is dropped.

mod circuit;
mod closed;
mod join;
mod ledger;
mod memory;
mod pass;
mod policy;
mod redis;
mod view;
mod window;

#[cfg(test)]
mod equivalence;
#[cfg(test)]
mod ledger_tests;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

pub(crate) use self::circuit::{Check, Recorded};
pub use self::circuit::{Force, Outcome, Reason, State};
pub(crate) use self::join::{Draft, Own};
pub use self::pass::Pass;
pub(crate) use self::pass::Tickets;
pub use self::policy::{Policy, Settings};
pub(crate) use self::redis::{KIND, parse_check, parse_recorded};
pub use self::view::{Page, View};
pub use self::window::Counts;

use self::circuit::Report;
use self::ledger::{Ended, Ledger};
use self::memory::MemoryBreaker;
use self::redis::RedisBreaker;
use crate::backend::MOST_LOCAL_KEYS;
use crate::fallback::Fallback;
use crate::metrics::CIRCUIT_CHANGES;
use crate::tasks::Tasks;
use crate::{Backend, Clock, Error, Holder, Key};

/// An operator's order is worth a longer wait than a call's admission.
const ORDER_DEADLINE: Duration = Duration::from_secs(2);

/// May a call go ahead?
#[derive(Debug)]
pub enum Admission {
    /// Yes; report how it went.
    Pass(Pass),
    /// No: the target is known to fail.
    Reject {
        /// When asking again makes sense.
        retry_after: Duration,
        /// Why the circuit opened.
        reason: Option<Reason>,
        /// Decided without Redis.
        degraded: bool,
    },
}

/// What an admitted call must show when it reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) generation: u64,
    pub(crate) probe: Option<Holder>,
}

impl Ticket {
    fn ended(self, outcome: Outcome, slow: bool) -> Ended {
        Ended { generation: self.generation, outcome, slow }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Pass(Ticket),
    Reject { retry_after_us: u64, reason: Option<Reason> },
}

/// Redis decides for the fleet; while it cannot, this process decides for itself. Cheap to clone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), gate::Error> {
/// use gate::breaker::{Admission, Breaker, Outcome, Policy, State};
/// use gate::{Backend, Key};
///
/// // `Backend::redis("redis://127.0.0.1/")?` shares the circuits with the fleet.
/// let breaker = Breaker::new(&Backend::memory(), Policy::default());
/// let target = Key::new("api.example.com")?;
/// while let Admission::Pass(pass) = breaker.admit(&target).await {
///     // .. the call, which fails ..
///     pass.record(Outcome::Failure).await;
/// }
/// let view = breaker.view(&target).await;
/// assert_eq!((view.state, view.trips), (State::Open, 1));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Breaker {
    inner: Arc<Inner>,
    policy: Arc<Policy>,
}

struct Inner {
    shared: Option<RedisBreaker>,
    local: MemoryBreaker,
    ledger: Ledger,
    fallback: Fallback,
    clock: Clock,
    tasks: Tasks,
    /// This process, as a reporter.
    me: Holder,
}

impl Breaker {
    /// A breaker whose circuits live where the backend says.
    #[must_use]
    pub fn new(backend: &Backend, policy: Policy) -> Self {
        let inner = Inner {
            shared: backend.shared.clone().filter(|_| !backend.has_own_circuits).map(RedisBreaker::new),
            local: MemoryBreaker::new(MOST_LOCAL_KEYS),
            ledger: Ledger::new(MOST_LOCAL_KEYS),
            fallback: backend.fallback.clone(),
            clock: backend.clock.clone(),
            tasks: backend.tasks.clone(),
            me: Holder::random(),
        };
        Breaker { inner: Arc::new(inner), policy: Arc::new(policy) }
    }

    /// The same circuits, judged by another policy.
    #[must_use]
    pub fn with_policy(&self, policy: Policy) -> Self {
        Breaker { inner: Arc::clone(&self.inner), policy: Arc::new(policy) }
    }

    /// May a call to this target go ahead?
    pub async fn admit(&self, target: &Key) -> Admission {
        let Some(shared) = &self.inner.shared else {
            return self.admit_alone(target, false);
        };
        let own = match self.ask_own_circuit(target) {
            Some(Answer::Reject { retry_after_us, reason }) => return reject(retry_after_us, reason, false),
            Some(Answer::Pass(ticket)) => Some(ticket),
            None => None,
        };
        match self.ask_the_fleet(shared, target).await {
            Some(Answer::Pass(ticket)) => {
                let local = self.unless_ordered(target, own);
                self.pass(target, Tickets { shared: Some(ticket), local }, false)
            }
            Some(Answer::Reject { retry_after_us, reason }) => {
                self.record_locally(target, own, Outcome::Ignored, false);
                reject(retry_after_us, reason, false)
            }
            None if own.is_some() => self.pass(target, Tickets { shared: None, local: own }, true),
            None => match self.inner.ledger.open_for(target, self.inner.clock.now_us()) {
                Some((retry_after_us, reason)) => reject(retry_after_us, reason, true),
                None => self.admit_alone(target, true),
            },
        }
    }

    /// Orders the circuit of a target open or closed, in the whole fleet, for a time that ends by itself.
    ///
    /// # Errors
    /// It would last longer than 30 days. Or Redis did not take the order; this process obeys it all the same.
    pub async fn force(&self, target: &Key, force: Force, lasting: Duration) -> Result<(), Error> {
        self.order(target, Some((force, policy::micros(lasting, "lasting")?))).await
    }

    /// Ends an order, and forgets everything else about the target: closed, and decided by its calls again.
    ///
    /// # Errors
    /// Redis did not take the order; this process obeys it all the same.
    pub async fn automatic(&self, target: &Key) -> Result<(), Error> {
        self.order(target, None).await
    }

    async fn order(&self, target: &Key, force: Option<(Force, u64)>) -> Result<(), Error> {
        let now_us = self.inner.clock.now_us();
        if let Some(shared) = &self.inner.shared {
            let order = tokio::time::timeout(ORDER_DEADLINE, shared.force(target, &self.policy, force)).await;
            let taken = order.map_err(|_| Error::Deadline(ORDER_DEADLINE)).flatten();
            // Any replica may lift an order that Redis took: this process's own circuit must not go on with it.
            self.inner.local.force(target, &self.policy, force.filter(|_| taken.is_err()), now_us);
            self.inner.ledger.ordered(target, &self.policy, force.filter(|_| taken.is_ok()), now_us);
            taken?;
            self.enrol(shared, target, true).await;
        } else {
            self.inner.local.force(target, &self.policy, force, now_us);
        }
        info!(gate = %target, order = ?force.map(|(force, _)| force), "An operator changed a circuit.");
        Ok(())
    }

    /// With a quorum, a process in trouble alone must stop alone: it asks its own circuit too. So does one that shares none.
    fn ask_own_circuit(&self, target: &Key) -> Option<Answer> {
        (self.policy.quorum > 1 || !self.is_shared())
            .then(|| self.inner.local.admit(target, &self.own_policy(), self.inner.clock.now_us()))
    }

    /// What the fleet lets pass by order says nothing about the target, to this process's own circuit neither.
    fn unless_ordered(&self, target: &Key, own: Option<Ticket>) -> Option<Ticket> {
        if own.is_some() && self.inner.ledger.is_ordered_closed(target) {
            self.record_locally(target, own, Outcome::Ignored, false);
            return None;
        }
        own
    }

    async fn ask_the_fleet(&self, shared: &RedisBreaker, target: &Key) -> Option<Answer> {
        let now_us = self.inner.clock.now_us();
        match self.inner.ledger.recall(target, &self.policy, now_us) {
            Some(Check::Pass { generation, .. }) => return Some(Answer::Pass(Ticket { generation, probe: None })),
            Some(Check::Reject { retry_after_us, reason }) => return Some(Answer::Reject { retry_after_us, reason }),
            Some(Check::Probe) | None => (),
        }
        let policy = self.fleet_policy();
        let (answer, check) = self.inner.fallback.attempt("breaker_admit", shared.admit(target, &policy)).await?;
        self.inner.ledger.heard(target, &policy, check, now_us);
        Some(answer)
    }

    fn admit_alone(&self, target: &Key, degraded: bool) -> Admission {
        match self.inner.local.admit(target, &self.own_policy(), self.inner.clock.now_us()) {
            Answer::Pass(ticket) => self.pass(target, Tickets { shared: None, local: Some(ticket) }, degraded),
            Answer::Reject { retry_after_us, reason } => reject(retry_after_us, reason, degraded),
        }
    }

    fn pass(&self, target: &Key, tickets: Tickets, degraded: bool) -> Admission {
        Admission::Pass(Pass::new(self.clone(), target.clone(), tickets, self.inner.clock.now_us(), degraded))
    }

    /// Reports to whoever issued the tickets.
    async fn settle(&self, target: &Key, tickets: Tickets, outcome: Outcome, latency: Duration) {
        let slow = self.policy.is_slow(latency);
        self.record_locally(target, tickets.local, outcome, slow);
        let (Some(shared), Some(ticket)) = (&self.inner.shared, tickets.shared) else { return };
        let now_us = self.inner.clock.now_us();
        let policy = self.fleet_policy();
        let past = match ticket.probe {
            Some(_) => Vec::new(),
            None => match self.inner.ledger.note(target, &policy, ticket.ended(outcome, slow), now_us) {
                Some(past) => past,
                None => return,
            },
        };
        let report = self.report(ticket, outcome, slow, past);
        let recorded = self.inner.fallback.attempt("breaker_record", shared.record(target, &policy, &report)).await;
        if let Some(recorded) = recorded {
            self.inner.ledger.heard_recorded(target, &policy, recorded, now_us);
            announce(target, recorded);
            self.enrol(shared, target, recorded.changed).await;
        }
    }

    /// The list is for people: one that cannot be written now is written at the next change.
    async fn enrol(&self, shared: &RedisBreaker, target: &Key, changed: bool) {
        if changed {
            self.inner.fallback.attempt("breaker_enrol", shared.enrol(target, &self.policy)).await;
        }
    }

    fn record_locally(&self, target: &Key, ticket: Option<Ticket>, outcome: Outcome, slow: bool) {
        let Some(ticket) = ticket else { return };
        let report = self.report(ticket, outcome, slow, Vec::new());
        announce(target, self.inner.local.record(target, &self.own_policy(), &report, self.inner.clock.now_us()));
    }

    fn report(&self, ticket: Ticket, outcome: Outcome, slow: bool, past: Vec<window::Past>) -> Report {
        let Ticket { generation, probe } = ticket;
        Report { generation, probe, outcome, slow, reporter: self.inner.me, past }
    }

    /// Nobody else reports to this process's own circuit.
    fn own_policy(&self) -> Policy {
        Policy { quorum: 1, ..(*self.policy).clone() }
    }

    /// A fleet smaller than the quorum could never open a circuit.
    fn fleet_policy(&self) -> Policy {
        Policy { quorum: self.policy.quorum.min(self.inner.fallback.replicas()), ..(*self.policy).clone() }
    }
}

impl std::fmt::Debug for Breaker {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Breaker").field("policy", &self.policy).finish_non_exhaustive()
    }
}

fn reject(retry_after_us: u64, reason: Option<Reason>, degraded: bool) -> Admission {
    Admission::Reject { retry_after: Duration::from_micros(retry_after_us), reason, degraded }
}

/// One log line and one count per change of phase, by the process whose report caused it.
pub(crate) fn announce(target: &Key, recorded: Recorded) {
    if !recorded.changed {
        return;
    }
    metrics::counter!(CIRCUIT_CHANGES, "to" => recorded.state.name()).increment(1);
    match recorded.state {
        State::Open => warn!(gate = %target, generation = recorded.generation, "The circuit opened."),
        State::Closed => info!(gate = %target, generation = recorded.generation, "The circuit closed."),
        State::HalfOpen | State::ForcedOpen | State::ForcedClosed => (),
    }
}
