//! Holds: take a cost now, say later what it really was. For callers who learn the price after the work, as with tokens.
//!
//! A hold is a lease. If nobody settles it, it ends by itself and its cost is given back, whichever process dies: who
//! takes one writes down first when it ends, and every process looks for ended ones. Settling twice changes nothing.
//! What costs more than was held is charged at the next free slot, so later callers wait for it. Nothing is given back
//! that came back by itself: a bucket has refilled since, and a window that is over gives nothing to the next one.
//!
//! # Without Redis
//! The process that took a hold keeps it and ends it; only it can settle it.

mod memory;
mod redis;
#[cfg(test)]
mod tests;

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use self::memory::MemoryHolds;
use self::redis::{MOST_SWEPT, RedisHolds};
use super::decision::Decision;
use super::rules::decide::Wait;
use super::rules::{State, Taken};
use super::{Ask, Limiter, Limits, Policy};
use crate::backend::Backend;
use crate::clock::micros;
use crate::fallback::Mode;
use crate::{Error, Holder, Key};

/// The kind in the key of a hold in Redis, and of what says when the holds of a key were forgotten.
pub(super) const KIND: &str = "hold";
/// How long it is known that a hold was settled or has ended.
const KEPT_US: u64 = 600_000_000;
pub(super) const LONGEST_KNOWN_US: u64 = LONGEST.as_secs() * 1_000_000 + KEPT_US;
/// Ended holds are looked for so often.
const SWEEP: Duration = Duration::from_millis(250);
/// Nobody waits for a sweep.
const SWEEP_DEADLINE: Duration = Duration::from_secs(5);
/// The longest a hold may last.
const LONGEST: Duration = Duration::from_secs(86_400);

/// Takes and settles holds on a limiter's keys. Cheap to clone.
#[derive(Clone)]
pub struct Holds {
    limiter: Limiter,
    shared: Option<RedisHolds>,
    local: Arc<MemoryHolds>,
}

/// What a caller keeps of a hold. Written with `Display`, read with [`Token::parse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Who knows it: Redis, or the process that decided alone.
    is_shared: bool,
    holder: Holder,
}

impl Token {
    /// Reads a token; anything that was not written by one is `None`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Token> {
        let is_shared = text.starts_with('s');
        let holder = Holder::parse(text.strip_prefix(['s', 'l'])?)?;
        Some(Token { is_shared, holder })
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_shared { 's' } else { 'l' }, self.holder)
    }
}

/// What became of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The hold is settled.
    Settled,
    /// It was settled before; nothing changed.
    Again,
    /// It had ended and was given back; the cost is charged now.
    Late,
    /// There is no such hold, or it ended long ago.
    Unknown,
    /// Redis knows it and cannot be asked.
    Unavailable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settlement {
    pub outcome: Outcome,
    /// What was charged in the end.
    pub cost: u64,
    pub remaining: u64,
    pub reset_after: Duration,
}

impl Settlement {
    fn without_hold(outcome: Outcome) -> Settlement {
        Settlement { outcome, cost: 0, remaining: 0, reset_after: Duration::ZERO }
    }
}

/// One hold, as both backends keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hold {
    phase: Phase,
    cost: u64,
    taken_us: u64,
    /// Its key was reset since: what is not counted cannot be given back.
    is_forgotten: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Settled,
    Expired,
}

impl Hold {
    fn open(cost: u64, taken_us: u64) -> Hold {
        Hold { phase: Phase::Open, cost, taken_us, is_forgotten: false }
    }

    fn give_back(&self, state: &mut State, policy: &Policy, cost: u64, now_us: u64) {
        if !self.is_forgotten {
            state.refund(policy, cost, Taken { cost: self.cost, at_us: self.taken_us }, now_us);
        }
    }

    /// Its price is known: corrects the count.
    fn settle(&mut self, state: &mut State, policy: &Policy, cost: u64, now_us: u64) -> Outcome {
        let (charged, outcome) = match self.phase {
            Phase::Settled => return Outcome::Again,
            Phase::Open => (self.cost, Outcome::Settled),
            Phase::Expired => (0, Outcome::Late),
        };
        if cost < charged {
            self.give_back(state, policy, charged - cost, now_us);
        }
        if cost > charged {
            let more = (cost - charged).min(policy.capacity());
            let slot_us = state.earliest(policy, more, now_us);
            state.charge(policy, more, slot_us, now_us);
        }
        (self.phase, self.cost) = (Phase::Settled, cost);
        outcome
    }

    /// Its time is over: gives everything back.
    fn expire(&mut self, state: &mut State, policy: &Policy, now_us: u64) {
        if self.phase == Phase::Open {
            self.give_back(state, policy, self.cost, now_us);
            (self.phase, self.cost) = (Phase::Expired, 0);
        }
    }
}

impl Holds {
    /// Holds on this limiter's keys. Needs a Tokio runtime: ended holds are looked for in the background.
    pub fn new(backend: &Backend, limiter: &Limiter) -> Holds {
        let shared = backend.shared.as_ref().map(|redis| RedisHolds::new(redis, &backend.tasks));
        let holds = Holds { limiter: limiter.clone(), shared, local: Arc::default() };
        backend.tasks.spawn(holds.clone().sweep_forever());
        holds
    }

    /// Like [`Limiter::check`]; if it is allowed, what was taken comes back after `lasts`, unless it is settled before.
    /// In memory one owner can have a quarter of all holds.
    pub async fn hold(
        &self,
        owner: &str,
        key: &Key,
        policy: &Policy,
        cost: NonZeroU64,
        lasts: Duration,
    ) -> Result<(Decision, Option<Token>), Error> {
        if cost.get() > policy.capacity() {
            return Ok((Decision::never(0, policy), None));
        }
        let lasts_us = micros(lasts.min(LONGEST));
        let token = Token { is_shared: true, holder: Holder::random() };
        if let Some(shared) = &self.shared {
            let (ask, asked_us) = ([Ask::new(key, policy, cost)], self.limiter.clock.now_us());
            let held = match self.limiter.hold_share(&Limits(&ask), Wait::AtMost(0), asked_us) {
                Ok(held) => held,
                Err(spent) => return Ok((spent, None)),
            };
            let taken = shared.hold(key, policy, cost.get(), token.holder, lasts_us);
            let answered = self.limiter.fallback.attempt("limiter_hold", taken).await;
            let now_us = self.limiter.clock.now_us();
            let is_taken = answered.is_some_and(|report| report.wait_us == 0);
            if !is_taken {
                self.limiter.let_go(&held, asked_us, now_us);
            }
            if let Some(report) = answered {
                self.limiter.follow(&Limits(&ask), &report, is_taken, &held, now_us);
                return Ok((Decision::from_report(&report, policy, false), is_taken.then_some(token)));
            }
        }
        self.local.check_room(owner)?;
        let now_us = self.limiter.clock.now_us();
        let decision = match &self.shared {
            Some(_) => {
                let ask = [Ask::new(key, policy, cost)];
                self.limiter.decide_alone(&Limits(&ask), Wait::AtMost(0), now_us).into_decision()
            }
            None => {
                let report = self.limiter.local.decide_one(key, policy, cost.get(), Wait::AtMost(0), now_us);
                Decision::from_report(&report, policy, false)
            }
        };
        let held = decision.is_allowed().then(|| {
            // A rule that is open without Redis counts nothing, so nothing comes back.
            let is_counted = self.shared.is_none() || policy.without_redis == Mode::Local;
            let (policy, charged) = (self.limiter.share(policy), if is_counted { cost.get() } else { 0 });
            self.local.insert(token.holder, owner, key, &policy, Hold::open(charged, now_us), lasts_us);
            Token { is_shared: false, ..token }
        });
        Ok((decision, held))
    }

    /// The hold's price is known; 0 cancels it. More than [`Policy::MOST_LIMIT`] counts as that.
    pub async fn settle(&self, key: &Key, policy: &Policy, token: &Token, cost: u64) -> Settlement {
        let cost = cost.min(Policy::MOST_LIMIT);
        let Some(shared) = self.shared.as_ref().filter(|_| token.is_shared) else {
            return self.local.settle(&self.limiter.local, token.holder, key, cost, self.limiter.clock.now_us());
        };
        let settled = shared.settle(key, policy, token.holder, cost);
        match self.limiter.fallback.attempt("limiter_settle", settled).await {
            Some(settlement) => {
                shared.denied_forget(&self.limiter, key);
                settlement
            }
            None => Settlement::without_hold(Outcome::Unavailable),
        }
    }

    /// Like [`Limiter::reset`]: also what is held of the key is forgotten, and never given back.
    pub async fn reset(&self, key: &Key, policy: &Policy) -> bool {
        self.local.forget(key);
        self.limiter.reset(key, policy).await
    }

    /// Holds of this process that are not over yet.
    pub fn local_holds(&self) -> usize {
        self.local.len()
    }

    /// Ends the holds whose time is over; returns how many were looked at.
    pub async fn sweep(&self) -> usize {
        let mut swept = self.local.sweep(&self.limiter.local, self.limiter.clock.now_us());
        let Some(shared) = &self.shared else { return swept };
        loop {
            let ended = self.limiter.fallback.aside("limiter_sweep", SWEEP_DEADLINE, shared.sweep()).await.unwrap_or(0);
            swept += ended;
            if ended < MOST_SWEPT {
                return swept;
            }
        }
    }

    async fn sweep_forever(self) {
        let mut tick = tokio::time::interval(SWEEP);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            self.sweep().await;
        }
    }
}
