//! What the gate needs of a breaker: its question as an argument, its answer from a reply, its report in a larger one.

use std::sync::Arc;
use std::time::Duration;

use super::circuit::{Check, Recorded};
use super::ledger::Ended;
use super::pass::{Pass, Tickets};
use super::window::Past;
use super::{Admission, Answer, Breaker, Outcome, Policy, Ticket, announce, reject};
use crate::{Holder, Key};

/// What this process's own circuit says before the fleet is asked.
pub(crate) enum Own {
    /// It has no objection; its ticket, if it was asked at all.
    Ticket(Option<Ticket>),
    Refused(Admission),
}

/// A report that waits for Redis' word whether it counts.
pub(crate) struct Draft {
    ticket: Ticket,
    ended: Ended,
    past: Option<Vec<Past>>,
    drafted_us: u64,
}

impl Breaker {
    /// The same circuits, judged by another policy that is shared already.
    pub(crate) fn judged_by(&self, policy: &Arc<Policy>) -> Breaker {
        Breaker { inner: Arc::clone(&self.inner), policy: Arc::clone(policy) }
    }

    /// Does the fleet share its circuits?
    pub(crate) fn is_shared(&self) -> bool {
        self.inner.shared.is_some()
    }

    /// The policy as a script reads it.
    pub(crate) fn policy_argument(&self) -> String {
        self.fleet_policy().to_argument()
    }

    pub(crate) fn ask_own(&self, target: &Key) -> Own {
        match self.ask_own_circuit(target) {
            Some(Answer::Reject { retry_after_us, reason }) => Own::Refused(reject(retry_after_us, reason, false)),
            Some(Answer::Pass(ticket)) => Own::Ticket(Some(ticket)),
            None => Own::Ticket(None),
        }
    }

    /// Takes note of what Redis said about the circuit, whatever the other parts of the gate decided.
    pub(crate) fn note_check(&self, target: &Key, check: Check) {
        self.inner.ledger.heard(target, &self.fleet_policy(), check, self.inner.clock.now_us());
    }

    /// Redis let a call pass that brought no circuit: an order to open that was heard of is lifted.
    pub(crate) fn note_no_order(&self, target: &Key) {
        let now_us = self.inner.clock.now_us();
        if self.inner.ledger.ordered_open_for(target, now_us).is_some() {
            self.inner.ledger.forget(target, &self.policy, now_us);
        }
    }

    /// The call goes ahead: a pass from the fleet's ticket and this process's own.
    pub(crate) fn pass_from(&self, target: &Key, shared: Option<Ticket>, own: Option<Ticket>, degraded: bool) -> Pass {
        let local = self.unless_ordered(target, own);
        Pass::new(self.clone(), target.clone(), Tickets { shared, local }, self.inner.clock.now_us(), degraded)
    }

    /// The call does not go ahead after all.
    pub(crate) fn give_back_own(&self, target: &Key, own: Option<Ticket>) {
        self.record_locally(target, own, Outcome::Ignored, false);
    }

    /// A probe that this process gave goes on.
    pub(crate) fn renew_probe_here(&self, target: &Key, holder: Holder) {
        self.inner.local.renew_probe(target, &self.own_policy(), holder, self.inner.clock.now_us());
    }

    /// Without Redis, of a target that no circuit guards: an order by hand holds all the same.
    pub(crate) fn forced_open_here(&self, target: &Key) -> Option<Duration> {
        let now_us = self.inner.clock.now_us();
        let heard = self.inner.ledger.ordered_open_for(target, now_us);
        heard.or_else(|| self.inner.local.forced_open_us(target, now_us)).map(Duration::from_micros)
    }

    /// Without Redis.
    pub(crate) fn admit_without_redis(&self, target: &Key, degraded: bool) -> Admission {
        match self.inner.ledger.open_for(target, self.inner.clock.now_us()).filter(|_| degraded) {
            Some((retry_after_us, reason)) => reject(retry_after_us, reason, true),
            None => self.admit_alone(target, degraded),
        }
    }

    /// Records here what is recorded here, and says what Redis must hear: the report, as a script reads it.
    pub(crate) fn report_argument(
        &self,
        target: &Key,
        tickets: Tickets,
        outcome: Outcome,
        latency: Duration,
    ) -> Option<String> {
        let slow = self.policy.is_slow(latency);
        self.record_locally(target, tickets.local, outcome, slow);
        let ticket = tickets.shared?;
        let past = match ticket.probe {
            Some(_) => Vec::new(),
            None => {
                let now_us = self.inner.clock.now_us();
                self.inner.ledger.note(target, &self.fleet_policy(), ticket.ended(outcome, slow), now_us)?
            }
        };
        Some(self.report(ticket, outcome, slow, past).to_argument())
    }

    /// Drafts the report of a call that counts only if the permit that came with it was still held.
    pub(crate) fn draft(&self, target: &Key, ticket: Ticket, outcome: Outcome, latency: Duration) -> Draft {
        let (ended, now_us) = (ticket.ended(outcome, self.policy.is_slow(latency)), self.inner.clock.now_us());
        let past = match ticket.probe {
            Some(_) => Some(Vec::new()),
            None => self.inner.ledger.take(target, &self.fleet_policy(), ended, now_us),
        };
        Draft { ticket, ended, past, drafted_us: now_us }
    }

    /// What Redis must hear, if it must.
    pub(crate) fn draft_argument(&self, draft: &Draft) -> Option<String> {
        let Draft { ticket, ended, past, .. } = draft;
        Some(self.report(*ticket, ended.outcome, ended.slow, past.clone()?).to_argument())
    }

    pub(crate) async fn draft_counts(&self, target: &Key, draft: Draft, recorded: Option<Recorded>) {
        if draft.past.is_none() {
            self.inner.ledger.count(target, &self.fleet_policy(), draft.ended, draft.drafted_us);
        }
        if let Some(recorded) = recorded {
            self.note_recorded(target, recorded).await;
        }
    }

    pub(crate) fn draft_counts_not(&self, target: &Key, draft: &Draft) {
        if let Draft { ended, past: Some(past), drafted_us, .. } = draft {
            self.inner.ledger.put_back(target, &self.fleet_policy(), *ended, past, *drafted_us);
        }
    }

    /// Takes note of what a report changed in Redis.
    pub(crate) async fn note_recorded(&self, target: &Key, recorded: Recorded) {
        self.inner.ledger.heard_recorded(target, &self.fleet_policy(), recorded, self.inner.clock.now_us());
        announce(target, recorded);
        if let Some(shared) = &self.inner.shared {
            self.enrol(shared, target, recorded.changed).await;
        }
    }
}

impl Pass {
    /// Takes the duty to report over from the pass.
    pub(crate) fn take_tickets(mut self) -> Tickets {
        self.tickets.take().unwrap_or_default()
    }
}
