//! The semaphore's rules, and nothing else: no clock, no lock, no I/O. `rules.lua` says the same in Redis.
//!
//! A permit is a lease with its own end. What always holds: at most `limit` permits are live at any time; a permit that
//! ended is lost to its holder, also if nobody took its place; a holder renews and releases only its own.
//!
//! `check` only reads and `add` only writes, so that a gate can ask every primitive first and charge last.

use std::collections::{BTreeSet, HashMap};

use super::Policy;
use crate::holder::Holder;

/// The live permits of one key, and ended ones that were not swept yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Permits {
    ends: HashMap<Holder, u64>,
    by_end: BTreeSet<(u64, Holder)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Pass,
    /// All are taken; the first one ends by itself after this time, or sooner if its holder is done.
    Full {
        retry_after_us: u64,
    },
}

impl Permits {
    /// Is a permit free? Changes nothing.
    pub(crate) fn check(&self, policy: &Policy, now_us: u64) -> Check {
        if self.held(now_us) < policy.limit {
            return Check::Pass;
        }
        let first_us = self.live(now_us).next().map_or(now_us, |(end_us, _)| *end_us);
        Check::Full { retry_after_us: first_us - now_us }
    }

    /// Commits the permit that `check` offered.
    pub(crate) fn add(&mut self, policy: &Policy, holder: Holder, now_us: u64) {
        while let Some((end_us, ended)) = self.by_end.first().copied()
            && end_us <= now_us
        {
            self.by_end.pop_first();
            self.ends.remove(&ended);
        }
        self.set(holder, now_us + policy.lease_us);
    }

    pub(crate) fn acquire(&mut self, policy: &Policy, holder: Holder, now_us: u64) -> Check {
        let check = self.check(policy, now_us);
        if check == Check::Pass {
            self.add(policy, holder, now_us);
        }
        check
    }

    /// Extends the holder's own lease. False: it is lost.
    pub(crate) fn renew(&mut self, policy: &Policy, holder: Holder, now_us: u64) -> bool {
        let is_live = self.ends.get(&holder).is_some_and(|end_us| now_us < *end_us);
        if is_live {
            self.set(holder, now_us + policy.lease_us);
        }
        is_live
    }

    /// Gives the permit back; a second time, or for a permit that is gone, it does nothing and says so.
    pub(crate) fn release(&mut self, holder: Holder) -> bool {
        let Some(end_us) = self.ends.remove(&holder) else { return false };
        self.by_end.remove(&(end_us, holder))
    }

    /// How many permits are live.
    pub(crate) fn held(&self, now_us: u64) -> u32 {
        let ended = self.by_end.range(..=(now_us, Holder::LAST)).count();
        u32::try_from(self.by_end.len() - ended).unwrap_or(u32::MAX)
    }

    /// When the last permit ends: from then on there is nothing to remember.
    pub(crate) fn idle_from_us(&self) -> u64 {
        self.by_end.last().map_or(0, |(end_us, _)| *end_us)
    }

    fn live(&self, now_us: u64) -> impl Iterator<Item = &(u64, Holder)> {
        self.by_end.range((now_us + 1, Holder::FIRST)..)
    }

    fn set(&mut self, holder: Holder, end_us: u64) {
        if let Some(before_us) = self.ends.insert(holder, end_us) {
            self.by_end.remove(&(before_us, holder));
        }
        self.by_end.insert((end_us, holder));
    }
}
