//! Gate: rate, circuit and concurrency of one target, decided together.
//!
//! [`Gate::enter`] asks all three in one Redis round trip and charges nothing unless all three agree. [`Pass::exit`]
//! frees the permit and reports to the circuit in one more. A pass that is dropped counts as ignored and frees its
//! permit; one whose process was killed frees it when its lease ends.
//!
//! # Without Redis
//! Each process decides with its share of the rate and of the permits and with a circuit of its own; see the three
//! primitives. An answer that came too late is not believed: its permit is given back, its charge stays.

mod pass;
mod policy;
mod redis;
mod token;

#[cfg(test)]
mod tests;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

pub use self::pass::Pass;
pub use self::policy::Policy;
pub use self::token::{Exit, Token};
pub use crate::breaker::Outcome;

use self::pass::{Duties, Parts};
use self::redis::{RedisGate, Reply};
use crate::breaker::{self, Admission, Breaker, Check, Own};
use crate::fallback::Fallback;
use crate::limiter::{Ask, Asked, Decision, Limiter, Ruling};
use crate::semaphore::{self, Acquired, Semaphore, Unheard};
use crate::tasks::Tasks;
use crate::{Backend, Clock, Holder, Key};

const STRIPES: usize = 64;
/// Every entry brings its own policy; this one only completes the type.
const UNUSED_PERMITS: semaphore::Policy = semaphore::Policy { limit: 1, lease_us: 30_000_000 };

/// May the call go ahead?
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a pass is the common answer; boxing it would allocate on every call")]
pub enum Entry {
    Pass(Pass),
    Refused(Refused),
}

/// No, and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    pub by: By,
    /// When asking again makes sense; `None` if the cost can never pass.
    pub retry_after: Option<Duration>,
    /// Decided without Redis.
    pub degraded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum By {
    Rate,
    Circuit,
    Concurrency,
}

/// Redis decides for the fleet; while it cannot, this process decides for itself. Cheap to clone.
///
/// ```
/// # use std::{num::NonZeroU64, time::Duration};
/// # use gate::{Backend, Key, breaker, limiter, semaphore, gate::{Entry, Gate, Outcome, Policy}};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), gate::Error> {
/// let gate = Gate::new(&Backend::memory());
/// let policy = Policy::default()
///     .rate(limiter::Policy::new(limiter::Algorithm::SlidingLog, 100, Duration::from_secs(1))?)
///     .circuit(breaker::Policy::default())
///     .concurrency(semaphore::Policy::new(10, Duration::from_secs(30))?);
/// match gate.enter(&Key::new("api.example.com")?, &policy, NonZeroU64::MIN).await {
///     Entry::Pass(pass) => pass.exit(Outcome::Success).await,
///     Entry::Refused(refused) => println!("{:?}, again in {:?}", refused.by, refused.retry_after),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Gate {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Option<RedisGate>,
    limiter: Limiter,
    breaker: Breaker,
    semaphore: Semaphore,
    fallback: Fallback,
    clock: Clock,
    tasks: Tasks,
    /// Without Redis, one target's three parts are decided under one lock.
    together: Box<[Mutex<()>]>,
}

/// One question, and what asks and answers it.
struct Question<'a> {
    target: &'a Key,
    policy: &'a Policy,
    rate: Option<Ask>,
    breaker: Option<Breaker>,
    semaphore: Option<Semaphore>,
    holder: Holder,
}

/// What Redis is to hear of a pass that has ended.
struct Word {
    breaker: Option<Breaker>,
    permit: Option<Holder>,
    report: Option<(String, String)>,
}

impl Question<'_> {
    /// The call does not go ahead: this process's own circuit takes its ticket back.
    fn give_back_own(&self, own: Option<breaker::Ticket>) {
        if let Some(breaker) = &self.breaker {
            breaker.give_back_own(self.target, own);
        }
    }
}

impl Gate {
    pub fn new(backend: &Backend) -> Gate {
        Gate {
            inner: Arc::new(Inner {
                shared: backend.shared.as_ref().map(|redis| RedisGate::new(redis, &backend.tasks)),
                limiter: Limiter::new(backend),
                breaker: Breaker::new(backend, breaker::Policy::default()),
                semaphore: Semaphore::new(backend, UNUSED_PERMITS),
                fallback: backend.fallback.clone(),
                clock: backend.clock.clone(),
                tasks: backend.tasks.clone(),
                together: (0..STRIPES).map(|_| Mutex::default()).collect(),
            }),
        }
    }

    /// The breaker part, for views, lists and orders by hand.
    pub fn breaker(&self) -> &Breaker {
        &self.inner.breaker
    }

    /// The rate part, for peeks and resets.
    pub fn limiter(&self) -> &Limiter {
        &self.inner.limiter
    }

    /// The concurrency part, for counting holders.
    pub fn semaphore(&self) -> &Semaphore {
        &self.inner.semaphore
    }

    /// May a call to this target go ahead? All parts of the policy agree, or nothing is charged.
    pub async fn enter(&self, target: &Key, policy: &Policy, cost: NonZeroU64) -> Entry {
        let question = self.question(target, policy, cost);
        let Some(shared) = &self.inner.shared else {
            return self.enter_alone(&question, false);
        };
        // It could forget who holds a permit.
        if question.semaphore.is_some() && self.inner.fallback.may_evict() {
            return self.enter_alone(&question, true);
        }
        if let Some(ask) = &question.rate
            && let Some(refusal) = self.inner.limiter.refuse_early(ask, policy.ahead_us)
        {
            return refused_by_rate(&refusal);
        }
        let own = match question.breaker.as_ref().map(|breaker| breaker.ask_own(target)) {
            Some(Own::Refused(admission)) => return refused_by_circuit(&admission),
            Some(Own::Ticket(own)) => own,
            None => None,
        };
        let asked_us = self.inner.clock.now_us();
        let asked = question.rate.as_ref().map(|ask| self.inner.limiter.asked(ask, policy.ahead_us));
        let asked = match asked.transpose() {
            Ok(asked) => asked,
            Err(spent) => {
                question.give_back_own(own);
                return refused_by_rate(&spent);
            }
        };
        let is_held = match question.semaphore.as_ref().map(|semaphore| semaphore.hold_share(target, question.holder)) {
            Some(Ok(is_held)) => is_held,
            Some(Err(retry_after)) => {
                self.let_go_of_rate(&question, asked);
                question.give_back_own(own);
                return refused(By::Concurrency, Some(retry_after), true);
            }
            None => false,
        };
        let circuit = question.breaker.as_ref().filter(|breaker| breaker.is_shared()).map(Breaker::policy_argument);
        // Boxed before it is wrapped: it is large, and each wrapper would hold it once more.
        let call = Box::pin(shared.enter(target, policy, circuit, question.rate.as_ref(), question.holder));
        let permits = question.semaphore.as_ref();
        let mut unheard = permits.map(|semaphore| Unheard::new(semaphore, target, question.holder));
        let call = async {
            match &mut unheard {
                Some(unheard) => unheard.until_heard(call).await,
                None => call.await,
            }
        };
        let reply = self.inner.fallback.attempt("gate_enter", call).await;
        drop(unheard);
        if !matches!(reply, Some(Reply::Pass { .. })) {
            self.let_go_of_rate(&question, asked);
            if is_held {
                self.inner.semaphore.release_here(target, question.holder);
            }
        }
        match reply {
            Some(reply) => self.heard(&question, reply, own, asked, asked_us),
            None => {
                question.give_back_own(own);
                self.enter_alone(&question, true)
            }
        }
    }

    fn question<'a>(&self, target: &'a Key, policy: &'a Policy, cost: NonZeroU64) -> Question<'a> {
        Question {
            target,
            policy,
            rate: policy.rate.as_ref().map(|rate| Ask::new(target, rate, cost)),
            breaker: policy.circuit.as_ref().map(|circuit| self.inner.breaker.judged_by(circuit)),
            semaphore: policy.concurrency.map(|concurrency| self.inner.semaphore.with_policy(concurrency)),
            holder: Holder::random(),
        }
    }

    /// Nothing was taken: the place in the rate's share is free again.
    fn let_go_of_rate(&self, question: &Question<'_>, asked: Option<Asked>) {
        if let (Some(ask), Some(asked)) = (&question.rate, asked) {
            self.inner.limiter.let_go_of(ask, asked);
        }
    }

    /// Redis has decided: every part takes note, and the pass or the refusal is worded.
    fn heard(
        &self,
        question: &Question<'_>,
        reply: Reply,
        own: Option<breaker::Ticket>,
        asked: Option<Asked>,
        asked_us: u64,
    ) -> Entry {
        let Question { target, policy, rate, breaker, semaphore, holder } = question;
        let note_rate = |report: &crate::limiter::Report, is_taken| {
            if let (Some(ask), Some(asked)) = (rate, asked) {
                self.inner.limiter.note(ask, report, is_taken, asked);
            }
        };
        if !matches!(reply, Reply::Pass { .. }) {
            question.give_back_own(own);
        }
        match reply {
            Reply::Rate(report) => {
                note_rate(&report, false);
                let wait_us = report.wait_us.saturating_sub(policy.ahead_us);
                refused(By::Rate, Some(Duration::from_micros(wait_us)), false)
            }
            Reply::Circuit(check) => {
                breaker.as_ref().unwrap_or(&self.inner.breaker).note_check(target, check);
                let retry_after_us = match check {
                    Check::Reject { retry_after_us, .. } => retry_after_us,
                    Check::Pass { .. } | Check::Probe => 0,
                };
                refused(By::Circuit, Some(Duration::from_micros(retry_after_us)), false)
            }
            Reply::Concurrency { retry_after_us } => {
                refused(By::Concurrency, Some(Duration::from_micros(retry_after_us)), false)
            }
            Reply::Pass { circuit, rate: report } => {
                let mut parts = Parts::default();
                if circuit.is_none() {
                    self.inner.breaker.note_no_order(target);
                }
                if let Some(breaker) = breaker {
                    if let Some((check, _)) = circuit {
                        breaker.note_check(target, check);
                    }
                    parts.circuit = Some(breaker.pass_from(target, circuit.map(|(_, ticket)| ticket), own, false));
                }
                if let Some(semaphore) = semaphore
                    && let Acquired::Permit(permit) = semaphore.permit_from(target, *holder, asked_us)
                {
                    parts.permit = Some(permit);
                }
                let ruling = report.zip(policy.rate.as_ref()).map(|(report, rate)| {
                    note_rate(&report, true);
                    Ruling::new(&report, rate, policy.ahead_us, false)
                });
                Entry::Pass(Pass::new(self.clone(), (*target).clone(), (*policy).clone(), parts, ruling, false))
            }
        }
    }

    /// Without Redis: each part decides here, the one that cannot be undone last.
    fn enter_alone(&self, question: &Question<'_>, degraded: bool) -> Entry {
        let Question { target, policy, rate, breaker, semaphore, .. } = question;
        let _together = self.inner.together_lock(target);
        let mut parts = Parts::default();
        // Asked in the order of the script, so that both name the same part.
        if let Some(ask) = rate {
            let peek = self.inner.limiter.peek_without_redis(ask, policy.ahead_us, degraded).decision;
            if !peek.is_allowed() {
                return refused_by_rate(&peek);
            }
        }
        if let Some(breaker) = breaker {
            match breaker.admit_without_redis(target, degraded) {
                Admission::Pass(pass) => parts.circuit = Some(pass),
                admission @ Admission::Reject { .. } => return refused_by_circuit(&admission),
            }
        } else if let Some(retry_after) = self.inner.breaker.forced_open_here(target) {
            return refused(By::Circuit, Some(retry_after), degraded);
        }
        if let Some(semaphore) = semaphore {
            match semaphore.acquire_without_redis(target) {
                Acquired::Permit(permit) => parts.permit = Some(permit),
                Acquired::Full { retry_after, degraded } => {
                    self.give_back(question, parts);
                    return refused(By::Concurrency, Some(retry_after), degraded);
                }
            }
        }
        let ruling = rate.as_ref().map(|ask| self.inner.limiter.check_without_redis(ask, policy.ahead_us, degraded));
        if let Some(Ruling { decision, .. }) = &ruling
            && !decision.is_allowed()
        {
            self.give_back(question, parts);
            return refused_by_rate(decision);
        }
        Entry::Pass(Pass::new(self.clone(), (*target).clone(), (*policy).clone(), parts, ruling, degraded))
    }

    /// Undoes what this process gave, at once and without Redis.
    fn give_back(&self, question: &Question<'_>, parts: Parts) {
        if let (Some(breaker), Some(pass)) = (&question.breaker, parts.circuit) {
            breaker.give_back_own(question.target, pass.take_tickets().local);
        }
        if let (Some(semaphore), Some(permit)) = (&question.semaphore, parts.permit) {
            semaphore.give_back_here(permit);
        }
    }

    /// Ends a pass here, at once. Returns what Redis is to hear of it, if anything.
    fn leave_here(
        &self,
        target: &Key,
        policy: &Policy,
        duties: Duties,
        outcome: Outcome,
        latency: Duration,
    ) -> Option<Word> {
        let breaker = policy.circuit.as_ref().map(|circuit| self.inner.breaker.judged_by(circuit));
        let report = breaker.as_ref().zip(duties.tickets).and_then(|(breaker, tickets)| {
            let report = breaker.report_argument(target, tickets, outcome, latency)?;
            Some((breaker.policy_argument(), report))
        });
        let permit = duties.permit.and_then(|permit| self.inner.semaphore.give_back_here(permit));
        if self.inner.shared.is_none() || permit.is_none() && report.is_none() {
            self.inner.semaphore.wake(target);
            return None;
        }
        Some(Word { breaker, permit, report })
    }

    /// Tells Redis with one call; what it does not hear is taken back later.
    async fn send(&self, target: &Key, policy: &Policy, Word { breaker, permit, report }: Word) {
        let is_heard = self.tell(target, breaker, permit, report).await;
        if let (false, Some(holder), Some(permits)) = (is_heard, permit, policy.concurrency) {
            self.inner.semaphore.with_policy(permits).take_back(target, holder);
        }
    }

    pub(super) fn now_us(&self) -> u64 {
        self.inner.clock.now_us()
    }

    pub(super) fn tasks(&self) -> &Tasks {
        &self.inner.tasks
    }
}

impl Inner {
    fn together_lock(&self, target: &Key) -> parking_lot::MutexGuard<'_, ()> {
        let index = usize::try_from(target.hash_value() % STRIPES as u64).unwrap_or(0);
        self.together[index].lock()
    }
}

fn refused(by: By, retry_after: Option<Duration>, degraded: bool) -> Entry {
    Entry::Refused(Refused { by, retry_after, degraded })
}

fn refused_by_rate(decision: &Decision) -> Entry {
    refused(By::Rate, decision.retry_after(), decision.degraded)
}

fn refused_by_circuit(admission: &Admission) -> Entry {
    match *admission {
        Admission::Reject { retry_after, degraded, .. } => refused(By::Circuit, Some(retry_after), degraded),
        Admission::Pass(_) => refused(By::Circuit, None, false),
    }
}
