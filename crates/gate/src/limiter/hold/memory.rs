//! Holds in this process.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use hashbrown::hash_map::EntryRef;
use parking_lot::Mutex;

use super::super::memory::MemoryLimiter;
use super::super::policy::Policy;
use super::{Hold, KEPT_US, Outcome, Phase, Settlement};
use crate::metrics::HOLDS_REFUSED;
use crate::{Error, Holder, Key};

/// Holds of one process. Those that are over and still known make room for others, the oldest first.
const MOST_HOLDS: usize = 1_000_000;
/// One owner's open ones are at most this part of all: whoever takes all it can leaves room for the others.
const PART_OF_ONE: usize = 4;
/// Holds that are ended under one lock.
const MOST_AT_ONCE: usize = 1_000;

pub(super) struct MemoryHolds {
    table: Mutex<Table>,
    most: usize,
}

impl Default for MemoryHolds {
    fn default() -> MemoryHolds {
        MemoryHolds { table: Mutex::default(), most: MOST_HOLDS }
    }
}

#[derive(Default)]
struct Table {
    entries: HashMap<Holder, Entry>,
    /// When an open one ends.
    ends: BTreeSet<(u64, Holder)>,
    /// Those that are over, and when each is forgotten; the first first.
    over: VecDeque<(u64, Holder)>,
    /// Open ones by owner.
    open: HashMap<Arc<str>, usize>,
}

struct Entry {
    owner: Arc<str>,
    key: Key,
    policy: Policy,
    hold: Hold,
    end_us: u64,
}

impl MemoryHolds {
    /// Is there room for one more of this owner's?
    pub(super) fn check_room(&self, owner: &str) -> Result<(), Error> {
        let table = self.table.lock();
        let own = table.open.get(owner).copied().unwrap_or(0);
        if table.ends.len() < self.most && own < self.most / PART_OF_ONE {
            return Ok(());
        }
        metrics::counter!(HOLDS_REFUSED).increment(1);
        Err(Error::Overloaded)
    }

    pub(super) fn insert(&self, holder: Holder, owner: &str, key: &Key, policy: &Policy, hold: Hold, lasts_us: u64) {
        let end_us = hold.taken_us + lasts_us;
        let mut table = self.table.lock();
        if table.entries.len() >= self.most
            && let Some((_, oldest)) = table.over.pop_front()
        {
            table.entries.remove(&oldest);
        }
        let owner = match table.open.get_key_value(owner) {
            Some((owner, _)) => owner.clone(),
            None => Arc::from(owner),
        };
        *table.open.entry(owner.clone()).or_default() += 1;
        table.entries.insert(holder, Entry { owner, key: key.clone(), policy: *policy, hold, end_us });
        table.ends.insert((end_us, holder));
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
        let Some(entry) = table.entries.get_mut(&holder).filter(|entry| entry.key == *key) else {
            return Settlement::without_hold(Outcome::Unknown);
        };
        let Entry { policy, hold, .. } = entry;
        let was_open = hold.phase == Phase::Open;
        let (outcome, remaining, reset_after_us) =
            limiter.correct(key, policy, now_us, |state| hold.settle(state, policy, cost, now_us));
        let cost = hold.cost;
        if was_open {
            table.close(holder, now_us);
        }
        Settlement { outcome, cost, remaining, reset_after: Duration::from_micros(reset_after_us) }
    }

    pub(super) fn sweep(&self, limiter: &MemoryLimiter, now_us: u64) -> usize {
        let mut swept = 0;
        loop {
            let ended = self.table.lock().sweep(limiter, now_us);
            swept += ended;
            if ended < MOST_AT_ONCE {
                return swept;
            }
        }
    }

    /// The count of a key is forgotten, and with it what is held of it.
    pub(super) fn forget(&self, key: &Key) {
        let mut table = self.table.lock();
        for entry in table.entries.values_mut().filter(|entry| entry.key == *key) {
            entry.hold.is_forgotten = true;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.lock().ends.len()
    }
}

impl Table {
    /// An open one is over. It stays known for a while.
    fn close(&mut self, holder: Holder, now_us: u64) {
        let Some(Entry { owner, end_us, .. }) = self.entries.get(&holder) else { return };
        self.ends.remove(&(*end_us, holder));
        if let EntryRef::Occupied(mut open) = self.open.entry_ref(&**owner) {
            *open.get_mut() -= 1;
            if *open.get() == 0 {
                open.remove();
            }
        }
        self.over.push_back((now_us + KEPT_US, holder));
    }

    fn sweep(&mut self, limiter: &MemoryLimiter, now_us: u64) -> usize {
        let mut swept = 0;
        while swept < MOST_AT_ONCE
            && let Some((end_us, holder)) = self.ends.first().copied()
            && end_us <= now_us
        {
            swept += 1;
            if let Some(Entry { key, policy, hold, .. }) = self.entries.get_mut(&holder) {
                limiter.correct(key, policy, now_us, |state| hold.expire(state, policy, now_us));
            }
            self.close(holder, now_us);
        }
        while swept < MOST_AT_ONCE
            && let Some((forgotten_us, holder)) = self.over.front().copied()
            && forgotten_us <= now_us
        {
            swept += 1;
            self.over.pop_front();
            self.entries.remove(&holder);
        }
        swept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::Algorithm;

    const NOW: u64 = 1_700_000_000_000_000;
    const MOST: usize = 8_000;

    fn few() -> MemoryHolds {
        MemoryHolds { most: MOST, ..MemoryHolds::default() }
    }

    fn take(holds: &MemoryHolds, owner: &str, count: usize, lasts_us: u64) -> Vec<Holder> {
        let (key, policy) = (Key::new("k").unwrap(), Policy::new(Algorithm::Gcra, 10, Duration::from_secs(1)).unwrap());
        let hold = Hold::open(0, NOW);
        let mut taken = Vec::new();
        while taken.len() < count && holds.check_room(owner).is_ok() {
            let holder = Holder::random();
            holds.insert(holder, owner, &key, &policy, hold, lasts_us);
            taken.push(holder);
        }
        taken
    }

    /// Settled ones were kept for ten minutes and counted as if they were open: 1,667 a second and everybody was
    /// refused.
    #[test]
    fn what_is_settled_makes_room_for_others_the_oldest_first() {
        let (holds, limiter, key) = (few(), MemoryLimiter::new(10), Key::new("k").unwrap());
        let settle = |holder| holds.settle(&limiter, holder, &key, 0, NOW).outcome;
        let mut all = Vec::new();
        for _ in 0..5 {
            let taken = take(&holds, "one", MOST / 4, 60_000_000);
            assert_eq!(taken.len(), MOST / 4);
            assert!(taken.iter().all(|holder| settle(*holder) == Outcome::Settled));
            all.extend(taken);
        }
        assert_eq!(holds.table.lock().entries.len(), MOST);
        assert_eq!((settle(all[0]), settle(all[all.len() - 1])), (Outcome::Unknown, Outcome::Again));
        assert_eq!(holds.sweep(&limiter, NOW + KEPT_US), MOST);
        assert!(holds.table.lock().entries.is_empty());
    }

    #[test]
    fn one_owner_leaves_room_for_the_others_and_has_it_again_when_its_holds_are_over() {
        let (holds, limiter) = (few(), MemoryLimiter::new(10));
        assert_eq!(take(&holds, "one", MOST, 1_000_000).len(), MOST / 4);
        assert_eq!(take(&holds, "another", 10, 60_000_000).len(), 10);
        assert_eq!(holds.sweep(&limiter, NOW + 1_000_000), MOST / 4);
        assert_eq!((holds.len(), take(&holds, "one", 10, 1_000_000).len()), (10, 10));
    }
}
