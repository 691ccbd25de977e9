//! What this process knows of a target between two trips to Redis: the last answer, and successes not sent yet.
//!
//! A closed, healthy circuit costs no write: successes are only counted here. They are sent when they matter, with their
//! age, as part of the next report: with every failure or slow call; with the first success after a failure count above
//! zero was heard (it breaks the row); and once per `refresh` while anybody reported trouble within the window.
//! So every failure is counted at once, and every success of a process that calls at least once per `refresh` at most
//! that much later; `gather` keeps a percentage from opening the circuit before that. A report whose answer is missing
//! is not repeated: those successes are lost, which can only make the rate look worse by that much.
//! Of an older generation than the latest that this process met, successes count for nothing and failures travel alone:
//! Redis would drop them, and all that came along.
//!
//! A belief lasts `refresh` too: by so much a process may lag behind the fleet. Zero asks every time.

use super::circuit::{Check, Force, Outcome, Reason, Recorded, State};
use super::policy::Policy;
use super::window::{BUCKETS, Past};
use crate::Key;
use crate::map::Map;

pub(crate) struct Ledger {
    pages: Map<Page>,
}

#[derive(Debug, Default)]
struct Page {
    belief: Belief,
    heard_us: u64,
    sent_us: u64,
    /// Bucket number and successes in it, all of one generation: a circuit that closed again starts with nothing.
    unsent: Vec<(u64, u64)>,
    /// Of the latest closed circuit that this process heard of, or whose ticket it was shown.
    generation: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Belief {
    #[default]
    Nothing,
    Closed {
        generation: u64,
        failures: u32,
        watched: bool,
        by_order: bool,
    },
    Open {
        until_us: u64,
        reason: Option<Reason>,
    },
}

/// A call on a closed circuit that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) generation: u64,
    pub(crate) outcome: Outcome,
    pub(crate) slow: bool,
}

impl Ended {
    fn is_bad(self) -> bool {
        self.outcome == Outcome::Failure || self.slow
    }
}

impl Page {
    fn turn_to(&mut self, generation: u64) {
        self.generation = generation;
        self.unsent.clear();
    }

    /// Another process may have given the ticket, and know more.
    fn meet(&mut self, generation: u64) {
        if generation > self.generation {
            self.turn_to(generation);
            if let Belief::Closed { .. } = self.belief {
                self.belief = Belief::Nothing;
            }
        }
    }

    fn take(&mut self, policy: &Policy, ended: Ended, now_us: u64) -> Option<Vec<Past>> {
        if ended.generation != self.generation {
            return ended.is_bad().then(Vec::new);
        }
        let (is_row, is_watched) = match self.belief {
            Belief::Closed { failures, watched, .. } => (failures > 0, watched),
            Belief::Nothing | Belief::Open { .. } => (false, false),
        };
        let is_due = is_watched && now_us.saturating_sub(self.sent_us) >= policy.refresh_us;
        if !ended.is_bad() && !is_row && !is_due {
            return None;
        }
        self.sent_us = now_us;
        if let Belief::Closed { failures, .. } = &mut self.belief {
            *failures = 0;
        }
        let current = self.forget_old(policy, now_us);
        Some(self.unsent.drain(..).map(|(number, calls)| Past { age: current - number, calls }).collect())
    }

    fn count(&mut self, policy: &Policy, ended: Ended, now_us: u64) {
        if ended.generation == self.generation {
            let current = self.forget_old(policy, now_us);
            self.add(current, 1);
        }
    }

    /// Returns the present bucket's number.
    fn forget_old(&mut self, policy: &Policy, now_us: u64) -> u64 {
        let current = now_us / policy.bucket_us();
        self.unsent.retain(|(number, _)| *number <= current && current - number < BUCKETS);
        current
    }

    fn add(&mut self, number: u64, calls: u64) {
        match self.unsent.iter_mut().find(|(known, _)| *known == number) {
            Some((_, counted)) => *counted += calls,
            None => self.unsent.push((number, calls)),
        }
    }
}

impl Ledger {
    pub(crate) fn new(max_keys: usize) -> Self {
        Ledger { pages: Map::new("breaker_ledger", max_keys) }
    }

    /// The last answer, while it is fresh enough to act on. Never a probe: those are handed out by Redis only.
    pub(crate) fn recall(&self, target: &Key, policy: &Policy, now_us: u64) -> Option<Check> {
        let (belief, heard_us) = self.pages.read(target, |page| (page.belief, page.heard_us))?;
        if now_us.saturating_sub(heard_us) >= policy.refresh_us {
            return None;
        }
        match belief {
            Belief::Nothing => None,
            Belief::Closed { generation, failures, watched, by_order } => {
                Some(Check::Pass { generation, failures, watched, by_order })
            }
            Belief::Open { until_us, reason } => {
                let retry_after_us = until_us.checked_sub(now_us).filter(|left_us| *left_us > 0)?;
                Some(Check::Reject { retry_after_us, reason })
            }
        }
    }

    /// Redis is gone: an open circuit stays open to the end of the time it was given.
    pub(crate) fn open_for(&self, target: &Key, now_us: u64) -> Option<(u64, Option<Reason>)> {
        match self.pages.read(target, |page| page.belief)? {
            Belief::Open { until_us, reason } if now_us < until_us => Some((until_us - now_us, reason)),
            Belief::Open { .. } | Belief::Closed { .. } | Belief::Nothing => None,
        }
    }

    /// The same, of an order by hand only.
    pub(crate) fn ordered_open_for(&self, target: &Key, now_us: u64) -> Option<u64> {
        let (left_us, reason) = self.open_for(target, now_us)?;
        (reason == Some(Reason::Forced)).then_some(left_us)
    }

    /// Did Redis let the last call pass by order?
    pub(crate) fn is_ordered_closed(&self, target: &Key) -> bool {
        self.pages.read(target, |page| matches!(page.belief, Belief::Closed { by_order: true, .. })).unwrap_or(false)
    }

    pub(crate) fn heard(&self, target: &Key, policy: &Policy, check: Check, now_us: u64) {
        let belief = match check {
            Check::Pass { generation, failures, watched, by_order } => {
                Belief::Closed { generation, failures, watched, by_order }
            }
            Check::Reject { retry_after_us, reason } => Belief::Open { until_us: now_us + retry_after_us, reason },
            Check::Probe => Belief::Nothing,
        };
        self.believe(target, policy, belief, now_us);
    }

    pub(crate) fn heard_recorded(&self, target: &Key, policy: &Policy, recorded: Recorded, now_us: u64) {
        let Recorded { state, generation, failures, watched, .. } = recorded;
        let belief = match state {
            State::Closed | State::ForcedClosed => {
                Belief::Closed { generation, failures, watched, by_order: state == State::ForcedClosed }
            }
            // Until when is not in the reply; the next admission asks.
            State::Open | State::HalfOpen | State::ForcedOpen => Belief::Nothing,
        };
        self.believe(target, policy, belief, now_us);
    }

    /// Takes note of a call. `Some` says that Redis must hear of it, with these past successes.
    pub(crate) fn note(&self, target: &Key, policy: &Policy, ended: Ended, now_us: u64) -> Option<Vec<Past>> {
        self.ended(target, policy, ended, now_us, |page| {
            let past = page.take(policy, ended, now_us);
            if past.is_none() {
                page.count(policy, ended, now_us);
            }
            past
        })
    }

    /// The first half of `note`, of a call that may turn out not to count: `put_back` then, `count` if it does and Redis need
    /// not hear.
    pub(crate) fn take(&self, target: &Key, policy: &Policy, ended: Ended, now_us: u64) -> Option<Vec<Past>> {
        self.ended(target, policy, ended, now_us, |page| page.take(policy, ended, now_us))
    }

    pub(crate) fn count(&self, target: &Key, policy: &Policy, ended: Ended, now_us: u64) {
        self.ended(target, policy, ended, now_us, |page| {
            page.count(policy, ended, now_us);
            None::<()>
        });
    }

    /// Redis did not want the report; the next one takes its past successes along, and is due at once.
    pub(crate) fn put_back(&self, target: &Key, policy: &Policy, ended: Ended, past: &[Past], taken_us: u64) {
        self.ended(target, policy, ended, taken_us, |page| {
            if ended.generation == page.generation {
                page.sent_us = 0;
                for Past { age, calls } in past {
                    page.add((taken_us / policy.bucket_us()).saturating_sub(*age), *calls);
                }
            }
            None::<()>
        });
    }

    fn ended<T>(
        &self,
        target: &Key,
        policy: &Policy,
        ended: Ended,
        now_us: u64,
        f: impl FnOnce(&mut Page) -> Option<T>,
    ) -> Option<T> {
        if ended.outcome == Outcome::Ignored {
            return None;
        }
        self.pages.update(target, now_us, |page| {
            page.meet(ended.generation);
            (f(page), now_us + policy.window_us + policy.refresh_us)
        })
    }

    /// An operator changed the circuit, in Redis if there is an order: one to open is believed like any answer.
    pub(crate) fn ordered(&self, target: &Key, policy: &Policy, taken: Option<(Force, u64)>, now_us: u64) {
        match taken {
            Some((Force::Open, retry_after_us)) => {
                self.heard(target, policy, Check::Reject { retry_after_us, reason: Some(Reason::Forced) }, now_us);
            }
            Some((Force::Closed, _)) | None => self.forget(target, policy, now_us),
        }
    }

    /// Forgets what was heard, not what was counted.
    pub(crate) fn forget(&self, target: &Key, policy: &Policy, now_us: u64) {
        self.believe(target, policy, Belief::Nothing, now_us);
    }

    fn believe(&self, target: &Key, policy: &Policy, belief: Belief, now_us: u64) {
        self.pages.update(target, now_us, |page| {
            page.belief = belief;
            page.heard_us = now_us;
            if let Belief::Closed { generation, .. } = belief
                && generation != page.generation
            {
                page.turn_to(generation);
            }
            let believed_us = match belief {
                Belief::Open { until_us, .. } => until_us,
                Belief::Closed { .. } | Belief::Nothing => 0,
            };
            ((), believed_us.max(now_us + policy.window_us + policy.refresh_us))
        });
    }
}
