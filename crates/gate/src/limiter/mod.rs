//! Limiter: at most so much per time, for the whole fleet.
//!
//! # Without Redis
//! Each process admits its share, limit ÷ live replicas, from where the fleet last stood: together they stay within the
//! limit and one call per replica; uneven traffic gets less. When an emptied Redis returns, one more burst may pass.

mod calendar;
mod decision;
mod denied;
mod every;
pub mod hold;
mod join;
mod memory;
mod memory_only;
mod policy;
mod redis;
mod rules;

#[cfg(test)]
mod equivalence;
#[cfg(test)]
mod properties;

use std::num::NonZeroU64;
use std::time::Duration;

pub(crate) use self::decision::Ruling;
pub use self::decision::{Decision, Reservation, Slot, Verdict};
pub(crate) use self::join::Asked;
pub use self::memory_only::Memory;
pub use self::policy::{Algorithm, Policy};
pub(crate) use self::redis::{limit_args, limiter_rules};
pub(crate) use self::rules::decide::Report;

use self::memory::MemoryLimiter;
use self::redis::RedisLimiter;
use self::rules::Taken;
use self::rules::decide::Wait;
use crate::backend::{Backend, MOST_LOCAL_KEYS};
use crate::clock::micros;
use crate::fallback::{DWELL, Fallback, Mode};
use crate::{Clock, Error, Key};

/// Limits that one call may decide together.
const MOST_LIMITS: usize = 16;
/// A day bounds every sum the rules make.
const LONGEST_WAIT: Duration = Duration::from_secs(86_400);

/// Redis decides for the fleet; while it cannot, this process decides for itself. Cheap to clone.
///
/// ```
/// # use std::{num::NonZeroU64, time::Duration};
/// # use gate::{Backend, Key, limiter::{Algorithm, Limiter, Policy}};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), gate::Error> {
/// let limiter = Limiter::new(&Backend::memory());
/// let policy = Policy::new(Algorithm::Gcra, 2, Duration::from_secs(1))?;
/// let user = Key::new("user-7")?;
/// assert!(limiter.check(&user, &policy, NonZeroU64::MIN).await.is_allowed());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Limiter {
    shared: Option<RedisLimiter>,
    local: MemoryLimiter,
    fallback: Fallback,
    clock: Clock,
}

/// One limit of a call: this much of this key, counted by this policy.
#[derive(Clone, Debug)]
pub struct Ask {
    key: Key,
    policy: Policy,
    cost: u64,
}

impl Ask {
    pub fn new(key: &Key, policy: &Policy, cost: NonZeroU64) -> Ask {
        Ask { key: key.clone(), policy: *policy, cost: cost.get() }
    }
}

impl Ask {
    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    fn is_in(&self, asks: &[Ask]) -> bool {
        asks.iter().any(|ask| ask.key == self.key)
    }
}

/// Asks that may be decided together: 1 to 16, all different.
struct Limits<'a>(&'a [Ask]);

impl<'a> Limits<'a> {
    fn asks(&self) -> &'a [Ask] {
        self.0
    }
}

impl Limiter {
    pub fn new(backend: &Backend) -> Limiter {
        Limiter {
            shared: backend.shared.as_ref().map(|redis| RedisLimiter::new(redis, &backend.tasks)),
            local: MemoryLimiter::new(MOST_LOCAL_KEYS),
            fallback: backend.fallback.clone(),
            clock: backend.clock.clone(),
        }
    }

    /// May this go ahead now? If so it is counted.
    pub async fn check(&self, key: &Key, policy: &Policy, cost: NonZeroU64) -> Decision {
        if self.shared.is_none() && cost.get() <= policy.capacity() {
            let wait = Wait::AtMost(0);
            let report = self.local.decide_one(key, policy, cost.get(), wait, self.clock.now_us());
            return Decision::from_report(&report, policy, false);
        }
        // A question to Redis is large: who is answered from memory need not carry the room for it around.
        Box::pin(self.decide(&Limits(&[Ask::new(key, policy, cost)]), Wait::AtMost(0))).await.into_decision()
    }

    /// Several limits at once: all are counted, or none is, and the decision names the one that refused.
    pub async fn check_all(&self, asks: &[Ask]) -> Result<Decision, Error> {
        Ok(self.decide(&self.together(asks)?, Wait::AtMost(0)).await.into_decision())
    }

    /// Would this go ahead now? Counts nothing, writes nothing.
    pub async fn peek(&self, key: &Key, policy: &Policy, cost: NonZeroU64) -> Decision {
        self.decide(&Limits(&[Ask::new(key, policy, cost)]), Wait::Peek).await.into_decision()
    }

    /// Like [`Limiter::peek`], over several limits.
    pub async fn peek_all(&self, asks: &[Ask]) -> Result<Decision, Error> {
        Ok(self.decide(&self.together(asks)?, Wait::Peek).await.into_decision())
    }

    /// Takes the next free slot, if it is at most `longest_wait` away. Later callers queue behind it.
    pub async fn reserve(&self, key: &Key, policy: &Policy, cost: NonZeroU64, longest_wait: Duration) -> Reservation {
        let ask = [Ask::new(key, policy, cost)];
        self.reserve_checked(&Limits(&ask), longest_wait).await
    }

    /// Like [`Limiter::reserve`]: one slot that suits several limits.
    pub async fn reserve_all(&self, asks: &[Ask], longest_wait: Duration) -> Result<Reservation, Error> {
        Ok(self.reserve_checked(&self.together(asks)?, longest_wait).await)
    }

    /// Gives back what was counted at most `ago` ago and not used; what remains is the answer's `remaining`. What came
    /// back by itself meanwhile, or in a window that is over, is not given a second time.
    pub async fn refund(&self, key: &Key, policy: &Policy, cost: NonZeroU64, ago: Duration) -> Decision {
        let (cost, ago_us, now_us) = (cost.get(), micros(ago.min(LONGEST_WAIT)), self.clock.now_us());
        let taken = Taken { cost, at_us: now_us.saturating_sub(ago_us) };
        let refund_here = || self.local.refund(key, &self.share(policy), taken, self.clock.now_us());
        if let Some(shared) = &self.shared {
            let refunded = self.fallback.attempt("limiter_refund", shared.refund(key, policy, cost, ago_us)).await;
            shared.denied.forget(key);
            if let Some(report) = refunded {
                refund_here();
                return Decision::from_report(&report, policy, false);
            }
        }
        Decision::from_report(&refund_here(), policy, self.shared.is_some())
    }

    /// Forgets everything about this key; answers whether the whole fleet did.
    pub async fn reset(&self, key: &Key, policy: &Policy) -> bool {
        self.local.reset(key);
        let Some(shared) = &self.shared else { return true };
        let is_reset = self.fallback.attempt("limiter_reset", shared.reset(key, policy)).await.is_some();
        shared.denied.forget(key);
        is_reset
    }

    /// Keys this process keeps state of.
    pub fn local_keys(&self) -> usize {
        self.local.len()
    }

    fn together<'a>(&self, asks: &'a [Ask]) -> Result<Limits<'a>, Error> {
        if asks.is_empty() || asks.len() > MOST_LIMITS {
            return Err(Error::LimitCount { most: MOST_LIMITS });
        }
        if asks.iter().enumerate().any(|(index, ask)| asks[..index].iter().any(|other| other.key == ask.key)) {
            return Err(Error::SameKeyTwice);
        }
        match &self.shared {
            Some(shared) if !shared.accepts(asks) => Err(Error::DifferentSlots),
            _ => Ok(Limits(asks)),
        }
    }

    async fn reserve_checked(&self, limits: &Limits<'_>, longest_wait: Duration) -> Reservation {
        let longest_us = micros(longest_wait.min(LONGEST_WAIT));
        self.decide(limits, Wait::AtMost(longest_us)).await.into_reservation(longest_us)
    }

    async fn decide(&self, limits: &Limits<'_>, wait: Wait) -> Answer {
        let asks = limits.asks();
        if let Some(rule) = asks.iter().position(|ask| ask.cost > ask.policy.capacity()) {
            return Answer::Fixed(Decision::never(rule, &asks[rule].policy));
        }
        let asked_us = self.clock.now_us();
        let Some(shared) = &self.shared else {
            let report = self.local.decide(limits, wait, asked_us, |policy| *policy);
            return Answer::counted(report, limits, false);
        };
        if wait == Wait::AtMost(0)
            && let Some(report) = recall(shared, asks, asked_us)
        {
            return Answer::counted(report, limits, false);
        }
        let held = match self.hold_share(limits, wait, asked_us) {
            Ok(held) => held,
            Err(spent) => return Answer::Fixed(spent),
        };
        let version = shared.denied.version(&asks[0].key);
        let operation = match wait {
            Wait::Peek => "limiter_peek",
            Wait::AtMost(0) => "limiter_check",
            Wait::AtMost(_) => "limiter_reserve",
        };
        let answered = self.fallback.attempt(operation, shared.decide(limits, wait)).await;
        // Others have used the local state meanwhile. By the time of the question its clock would seem to step back.
        let now_us = self.clock.now_us();
        let is_taken = matches!((wait, &answered),
            (Wait::AtMost(longest_us), Some(report)) if report.wait_us <= longest_us);
        if !is_taken {
            self.let_go(&held, asked_us, now_us);
        }
        let Some(report) = answered else {
            return self.decide_alone(limits, wait, now_us);
        };
        if report.wait_us > 0 && wait == Wait::AtMost(0) && asks.len() == 1 {
            shared.denied.remember(&asks[0].key, &asks[0].policy, asks[0].cost, &report, (version, asked_us));
        }
        self.follow(limits, &report, is_taken, &held, now_us);
        Answer::counted(report, limits, false)
    }

    /// Keeps the local state where the fleet stands. What is held in the share is charged there already.
    fn follow(&self, limits: &Limits<'_>, report: &Report, is_taken: bool, held: &[Ask], now_us: u64) {
        let replicas = u64::from(self.fallback.replicas());
        for (rule, ask) in limits.asks().iter().enumerate() {
            let charged = if is_taken && !ask.is_in(held) { ask.cost } else { 0 };
            if is_taken && let Some(shared) = &self.shared {
                shared.denied.outdate(&ask.key);
            }
            let left = if rule == report.limit { report.remaining.div_ceil(replicas) } else { u64::MAX };
            self.local.follow(&ask.key, &self.share(&ask.policy), charged, left, now_us);
        }
    }

    /// While traffic returns to Redis, Redis and the shares count beside each other. So a call holds its place in the
    /// share while it asks, and a share that is spent refuses: together they give no more than before. What Redis takes
    /// keeps its place.
    fn hold_share(&self, limits: &Limits<'_>, wait: Wait, now_us: u64) -> Result<Vec<Ask>, Decision> {
        if !self.fallback.is_returning() || wait == Wait::Peek {
            return Ok(Vec::new());
        }
        let has_share =
            |ask: &&Ask| ask.policy.without_redis == Mode::Local && ask.cost <= self.share(&ask.policy).capacity();
        let held: Vec<Ask> = limits.asks().iter().filter(has_share).cloned().collect();
        if held.is_empty() {
            return Ok(held);
        }
        let mut report = self.local.decide(&Limits(&held), wait, now_us, |policy| self.share(policy));
        if matches!(wait, Wait::AtMost(longest_us) if report.wait_us <= longest_us) {
            return Ok(held);
        }
        report.limit = limits.asks().iter().position(|ask| ask.key == held[report.limit].key).unwrap_or(0);
        Err(Answer::counted(report, limits, true).into_decision())
    }

    /// Redis has not taken it.
    fn let_go(&self, held: &[Ask], taken_us: u64, now_us: u64) {
        for ask in held {
            let taken = Taken { cost: ask.cost, at_us: taken_us };
            self.local.refund(&ask.key, &self.share(&ask.policy), taken, now_us);
        }
    }

    /// Without Redis: as each rule says.
    fn decide_alone(&self, limits: &Limits<'_>, wait: Wait, now_us: u64) -> Answer {
        let asks = limits.asks();
        let closed = |ask: &Ask| match ask.policy.without_redis {
            Mode::Closed => true,
            Mode::Local => ask.cost > self.share(&ask.policy).capacity(),
            Mode::Open => false,
        };
        if let Some(rule) = asks.iter().position(closed) {
            let verdict = Verdict::Denied { retry_after: DWELL };
            return Answer::Fixed(Decision::fixed(verdict, rule, &asks[rule].policy));
        }
        let local: Vec<Ask> = asks.iter().filter(|ask| ask.policy.without_redis == Mode::Local).cloned().collect();
        if local.is_empty() {
            return Answer::Fixed(Decision::fixed(Verdict::Allowed, 0, &asks[0].policy));
        }
        let mut report = self.local.decide(&Limits(&local), wait, now_us, |policy| self.share(policy));
        report.limit = asks.iter().position(|ask| ask.key == local[report.limit].key).unwrap_or(0);
        Answer::counted(report, limits, true)
    }

    fn share(&self, policy: &Policy) -> Policy {
        if self.shared.is_some() { policy.share(self.fallback.replicas()) } else { *policy }
    }
}

/// A refusal that is certain without asking.
fn recall(shared: &RedisLimiter, asks: &[Ask], now_us: u64) -> Option<Report> {
    asks.iter().enumerate().find_map(|(rule, ask)| {
        let report = shared.denied.recall(&ask.key, &ask.policy, ask.cost, now_us)?;
        Some(Report { limit: rule, ..report })
    })
}

/// A decision before it is worded for its caller.
enum Answer {
    Counted { report: Report, policy: Policy, degraded: bool },
    Fixed(Decision),
}

impl Answer {
    fn counted(report: Report, limits: &Limits<'_>, degraded: bool) -> Answer {
        let policy = limits.asks()[report.limit.min(limits.asks().len() - 1)].policy;
        Answer::Counted { report, policy, degraded }
    }

    fn into_decision(self) -> Decision {
        match self {
            Answer::Counted { report, policy, degraded } => Decision::from_report(&report, &policy, degraded),
            Answer::Fixed(decision) => decision,
        }
    }

    fn into_ruling(self, ahead_us: u64) -> Ruling {
        match self {
            Answer::Counted { report, policy, degraded } => Ruling::new(&report, &policy, ahead_us, degraded),
            Answer::Fixed(decision) => Ruling { decision, delay: Duration::ZERO },
        }
    }

    fn into_reservation(self, longest_us: u64) -> Reservation {
        let (delay, rule, degraded) = match self {
            Answer::Counted { report, degraded, .. } => (report.wait_us, report.limit, degraded),
            Answer::Fixed(Decision { verdict, rule, degraded, .. }) => match verdict {
                Verdict::Allowed => (0, rule, degraded),
                Verdict::Denied { retry_after } => {
                    return Reservation { slot: Slot::TooFar { delay: retry_after }, rule, degraded };
                }
                Verdict::Never => return Reservation { slot: Slot::Never, rule, degraded },
            },
        };
        let slot = match Duration::from_micros(delay) {
            delay if micros(delay) <= longest_us => Slot::Taken { delay },
            delay => Slot::TooFar { delay },
        };
        Reservation { slot, rule, degraded }
    }
}
