//! Holds in this process.

use std::collections::BTreeSet;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::super::memory::MemoryLimiter;
use super::super::policy::Policy;
use super::{Hold, KEPT_US, Outcome, Phase, Settlement};
use crate::{Error, Holder, Key};

/// Holds of one process, the settled ones that are still known included.
const MOST_HOLDS: usize = 1_000_000;

#[derive(Default)]
pub(super) struct MemoryHolds {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    entries: HashMap<Holder, Entry>,
    /// When an open one ends, and when another is forgotten.
    by_end: BTreeSet<(u64, Holder)>,
}

struct Entry {
    key: Key,
    policy: Policy,
    hold: Hold,
    end_us: u64,
}

impl MemoryHolds {
    pub(super) fn check_room(&self) -> Result<(), Error> {
        if self.table.lock().entries.len() >= MOST_HOLDS { Err(Error::Overloaded) } else { Ok(()) }
    }

    pub(super) fn insert(&self, holder: Holder, key: &Key, policy: &Policy, cost: u64, now_us: u64, lasts_us: u64) {
        let hold = Hold { phase: Phase::Open, cost, taken_us: now_us };
        let end_us = now_us + lasts_us;
        let mut table = self.table.lock();
        table.entries.insert(holder, Entry { key: key.clone(), policy: *policy, hold, end_us });
        table.by_end.insert((end_us, holder));
    }

    /// A hold belongs to one key: who names another does not have it.
    pub(super) fn settle(
        &self,
        limiter: &MemoryLimiter,
        holder: Holder,
        key: &Key,
        cost: u64,
        now_us: u64,
    ) -> Settlement {
        let mut table = self.table.lock();
        let Table { entries, by_end } = &mut *table;
        let Some(entry) = entries.get_mut(&holder).filter(|entry| entry.key == *key) else {
            return Settlement::without_hold(Outcome::Unknown);
        };
        let Entry { policy, hold, end_us, .. } = entry;
        let (outcome, remaining, reset_after_us) =
            limiter.correct(key, policy, now_us, |state| hold.settle(state, policy, cost, now_us));
        by_end.remove(&(*end_us, holder));
        *end_us = now_us + KEPT_US;
        by_end.insert((*end_us, holder));
        Settlement { outcome, cost: hold.cost, remaining, reset_after: Duration::from_micros(reset_after_us) }
    }

    pub(super) fn sweep(&self, limiter: &MemoryLimiter, now_us: u64) -> usize {
        let mut table = self.table.lock();
        let Table { entries, by_end } = &mut *table;
        let mut swept = 0;
        while let Some((end_us, holder)) = by_end.first().copied()
            && end_us <= now_us
        {
            by_end.pop_first();
            swept += 1;
            let Some(entry) = entries.get_mut(&holder) else { continue };
            if entry.hold.phase != Phase::Open {
                entries.remove(&holder);
                continue;
            }
            let Entry { key, policy, hold, end_us } = entry;
            limiter.correct(key, policy, now_us, |state| hold.expire(state, policy, now_us));
            *end_us = now_us + KEPT_US;
            by_end.insert((*end_us, holder));
        }
        swept
    }

    pub(super) fn len(&self) -> usize {
        self.table.lock().entries.values().filter(|entry| entry.hold.phase == Phase::Open).count()
    }
}
