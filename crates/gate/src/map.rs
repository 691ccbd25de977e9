//! A sharded map from key to state, bounded in size, that forgets idle keys.
//!
//! A state is idle from the time its owner names: then it equals the default and need not be kept. Idle keys go when
//! their shard wants to grow. A shard that is full of live keys throws out the one that would be idle first among a few,
//! and counts it.

use hashbrown::HashTable;
use parking_lot::Mutex;

use crate::Key;
use crate::metrics::MAP_EVICTIONS;

const SHARDS: usize = 64;
/// Sweeping a full shard again within this time would find little and cost much.
const SWEEP_EVERY_US: u64 = 1_000_000;
/// How many candidates an eviction looks at.
const EVICTION_SAMPLE: usize = 8;
/// Shards below this length are left alone.
const SMALLEST_SWEEP: usize = 512;
/// A key that was in use so recently is likely to come again: throwing it out would only cost.
const GRACE_US: u64 = 1_000_000;

pub(crate) struct Map<S> {
    name: &'static str,
    shards: Box<[Mutex<Shard<S>>]>,
    capacity_per_shard: usize,
}

struct Shard<S> {
    entries: HashTable<Entry<S>>,
    sweeps: Sweeps,
}

/// When a shard is swept.
struct Sweeps {
    /// Length at which the next one is due; twice what the last one left.
    at: usize,
    last_us: u64,
}

struct Entry<S> {
    key: Key,
    state: S,
    idle_from_us: u64,
}

impl<S: Default> Map<S> {
    /// `name` labels the metric of evictions; at most `max_keys` (rounded up to the shards) are kept.
    pub(crate) fn new(name: &'static str, max_keys: usize) -> Map<S> {
        let sweeps = || Sweeps { at: SMALLEST_SWEEP, last_us: 0 };
        let shard = || Mutex::new(Shard { entries: HashTable::new(), sweeps: sweeps() });
        Map {
            name,
            shards: (0..SHARDS).map(|_| shard()).collect(),
            capacity_per_shard: max_keys.div_ceil(SHARDS).max(1),
        }
    }

    /// Runs `f` on the key's state (the default if unknown). `f` also says from when on the state is idle;
    /// `0` forgets the key at once.
    pub(crate) fn update<R>(&self, key: &Key, now_us: u64, f: impl FnOnce(&mut S) -> (R, u64)) -> R {
        let mut shard = self.shard(key).lock();
        let Shard { entries, sweeps } = &mut *shard;
        let (mut found, is_new) = match entries.find_entry(key.hash_value(), |entry| entry.key == *key) {
            Ok(found) => (found, false),
            Err(absent) => {
                let entries = absent.into_table();
                self.make_room(entries, sweeps, now_us);
                let entry = Entry { key: key.clone(), state: S::default(), idle_from_us: 0 };
                (entries.insert_unique(key.hash_value(), entry, Entry::hash), true)
            }
        };
        // Called in one place only, so that it is inlined: its result would otherwise go through memory twice.
        let (result, idle_from_us) = f(&mut found.get_mut().state);
        found.get_mut().idle_from_us = idle_from_us;
        if idle_from_us == 0 || (is_new && idle_from_us <= now_us) {
            found.remove();
        }
        result
    }

    /// Like [`Map::update`] for several different keys at once; nobody sees a state in between.
    pub(crate) fn update_all<R>(&self, keys: &[&Key], now_us: u64, f: impl FnOnce(&mut [S]) -> (R, Vec<u64>)) -> R {
        let mut order: Vec<usize> = keys.iter().map(|key| shard_index(key)).collect();
        order.sort_unstable();
        order.dedup();
        // Always locked in the order of the shards, so that two callers cannot wait for each other.
        let mut locked: Vec<_> = order.iter().map(|index| self.shards[*index].lock()).collect();
        let position = |key: &Key| order.binary_search(&shard_index(key)).unwrap_or(0);
        let mut states: Vec<S> = keys
            .iter()
            .map(|key| {
                let entries = &mut locked[position(key)].entries;
                let found = entries.find_entry(key.hash_value(), |entry| entry.key == **key);
                found.map_or_else(|_| S::default(), |found| found.remove().0.state)
            })
            .collect();
        let (result, idle_from_us) = f(&mut states);
        for ((key, state), idle_from_us) in keys.iter().zip(states).zip(idle_from_us) {
            if idle_from_us > now_us {
                let shard = &mut *locked[position(key)];
                self.make_room(&mut shard.entries, &mut shard.sweeps, now_us);
                let entry = Entry { key: (*key).clone(), state, idle_from_us };
                shard.entries.insert_unique(key.hash_value(), entry, Entry::hash);
            }
        }
        result
    }

    /// Reads the key's state, if there is one.
    pub(crate) fn read<R>(&self, key: &Key, f: impl FnOnce(&S) -> R) -> Option<R> {
        let shard = self.shard(key).lock();
        shard.entries.find(key.hash_value(), |entry| entry.key == *key).map(|entry| f(&entry.state))
    }

    pub(crate) fn remove(&self, key: &Key) -> Option<S> {
        let mut shard = self.shard(key).lock();
        let found = shard.entries.find_entry(key.hash_value(), |entry| entry.key == *key).ok()?;
        Some(found.remove().0.state)
    }

    /// Every key and its state, one shard at a time; for listings, not for hot paths.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&Key, &S)) {
        for shard in &self.shards {
            for entry in &shard.lock().entries {
                f(&entry.key, &entry.state);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().entries.len()).sum()
    }

    fn shard(&self, key: &Key) -> &Mutex<Shard<S>> {
        &self.shards[shard_index(key)]
    }

    #[cold]
    fn make_room(&self, entries: &mut HashTable<Entry<S>>, sweeps: &mut Sweeps, now_us: u64) {
        let is_full = entries.len() >= self.capacity_per_shard;
        let is_sweep_due = if is_full { now_us >= sweeps.last_us + SWEEP_EVERY_US } else { entries.len() >= sweeps.at };
        if is_sweep_due {
            entries.retain(|entry| entry.idle_from_us.saturating_add(GRACE_US) > now_us);
            *sweeps = Sweeps { at: (entries.len() * 2).max(SMALLEST_SWEEP), last_us: now_us };
            if entries.capacity() > sweeps.at * 4 {
                entries.shrink_to(sweeps.at, Entry::hash);
            }
        }
        if entries.len() >= self.capacity_per_shard {
            let sample = entries.iter().take(EVICTION_SAMPLE);
            let victim = sample.min_by_key(|entry| entry.idle_from_us).map(|entry| entry.key.clone());
            let found = victim.map(|key| entries.find_entry(key.hash_value(), |entry| entry.key == key));
            if let Some(Ok(found)) = found {
                found.remove();
                metrics::counter!(MAP_EVICTIONS, "map" => self.name).increment(1);
            }
        }
    }
}

fn shard_index(key: &Key) -> usize {
    // The table inside uses the low and the top bits of the hash; these are in between.
    usize::try_from((key.hash_value() >> 40) % SHARDS as u64).unwrap_or(0)
}

impl<S> Entry<S> {
    fn hash(&self) -> u64 {
        self.key.hash_value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> Key {
        Key::new(format!("key-{n}")).unwrap()
    }

    fn touch(map: &Map<u32>, n: usize, now_us: u64, idle_from_us: u64) {
        map.update(&key(n), now_us, |state| {
            *state += 1;
            ((), idle_from_us)
        });
    }

    #[test]
    fn idle_keys_are_forgotten_when_new_ones_come() {
        const S: u64 = 1_000_000;
        let map = Map::new("test", 10_000_000);
        for n in 0..60_000 {
            touch(&map, n, S, 2 * S);
        }
        for n in 60_000..180_000 {
            touch(&map, n, 4 * S, 5 * S);
        }
        assert_eq!(map.read(&key(0), |state| *state), None, "key 0 was idle when its shard grew");
        assert_eq!(map.read(&key(179_999), |state| *state), Some(1));
        assert!(map.len() <= 130_000, "idle keys stay: {}", map.len());
    }

    #[test]
    fn the_map_never_grows_over_its_bound_even_when_every_key_is_live() {
        let map = Map::new("test", 1_000);
        for n in 0..20_000 {
            touch(&map, n, n as u64, u64::MAX);
        }
        assert!(map.len() <= 1_024, "{} keys", map.len());
        assert_eq!(map.read(&key(19_999), |state| *state), Some(1), "the newest key is kept");
    }

    #[test]
    fn a_state_that_is_idle_at_once_is_not_stored() {
        let map = Map::new("test", 10);
        touch(&map, 1, 5, 0);
        assert_eq!(map.len(), 0);
        touch(&map, 1, 5, 6);
        touch(&map, 1, 5, 0);
        assert_eq!(map.len(), 0);
    }
}
