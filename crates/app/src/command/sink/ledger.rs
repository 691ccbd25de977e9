//! What came to a sink: which ids for the first time, which again, and what is missing. Pure but for its locks.
//!
//! Events of `tidegate produce` are numbered, `prd_<run>_<number>`: one bit each tells whether it came, so gaps are seen
//! and millions cost little. Other ids are remembered by hash. Both are bounded; past the bound everything counts as new.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use parking_lot::Mutex;

use crate::command::samples::{Percentiles, Samples};

const SHARDS: usize = 16;
const MOST_IDS: usize = (4 << 20) / SHARDS;
const MOST_RUNS: usize = 64;
const LARGEST_NUMBER: usize = 1 << 26;
const SHOWN_GAPS: usize = 5;

/// One call.
pub(super) struct Arrival<'a> {
    pub path: &'a str,
    /// Absent: it is nobody's webhook, and is only counted.
    pub id: Option<&'a str>,
    /// `None`: nobody asked to check signatures.
    pub is_verified: Option<bool>,
    /// False also while the answer is yet to come, because its caller may leave before: see [`Ledger::answered`].
    pub is_answered_well: bool,
    /// Since the sink started.
    pub at: Duration,
    /// From the event's acceptance.
    pub latency: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sighting {
    First,
    /// Again, after nothing but failures.
    Retry,
    /// Again, although it was answered well before.
    Duplicate,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub received: u64,
    pub distinct: u64,
    pub retries: u64,
    pub duplicates: u64,
    pub verified: u64,
    pub not_verified: u64,
    pub failed: u64,
    pub without_id: u64,
    first: Option<Duration>,
    last: Duration,
}

/// One run of `tidegate produce`, as far as it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    pub came: u64,
    /// Up to the highest number that came.
    pub missing: u64,
    /// The first of the missing.
    pub gaps: Vec<usize>,
}

#[derive(Default)]
pub(super) struct Ledger {
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Default)]
struct Shard {
    counts: Counts,
    latencies: Samples,
    runs: HashMap<Box<str>, Marks>,
    /// Whether it was answered well.
    ids: HashMap<u64, bool>,
}

/// Two bits for every number of a run that this shard holds.
#[derive(Default)]
struct Marks {
    came: Vec<u64>,
    answered_well: Vec<u64>,
}

impl Ledger {
    pub(super) fn note(&self, arrival: &Arrival<'_>) -> Sighting {
        let Some(id) = arrival.id else {
            let mut shard = self.shards[0].lock();
            shard.counts.without_id += 1;
            shard.count(arrival, Sighting::First);
            return Sighting::First;
        };
        if let Some((run, number)) = numbered(id) {
            let mut shard = self.shards[number % SHARDS].lock();
            if let Some(marks) = shard.run(run) {
                let sighting = marks.note(number / SHARDS, arrival.is_answered_well);
                shard.count(arrival, sighting);
                return sighting;
            }
        }
        let hash = self.hash(arrival.path, id);
        let mut shard = self.shard_of(hash).lock();
        let sighting = shard.note_id(hash, arrival.is_answered_well);
        shard.count(arrival, sighting);
        sighting
    }

    /// The good answer goes out now to a call that counted as failed until then. `sighting`: what it was noted as.
    pub(super) fn answered(&self, path: &str, id: Option<&str>, sighting: Sighting) {
        let Some(id) = id else {
            return self.shards[0].lock().count_answer(sighting, false);
        };
        if let Some((run, number)) = numbered(id) {
            let mut shard = self.shards[number % SHARDS].lock();
            if let Some(marks) = shard.runs.get_mut(run) {
                let was_answered_well = is_set(&marks.answered_well, number / SHARDS);
                set(&mut marks.answered_well, number / SHARDS);
                return shard.count_answer(sighting, was_answered_well);
            }
        }
        let hash = self.hash(path, id);
        let mut shard = self.shard_of(hash).lock();
        let was_answered_well = shard.ids.get_mut(&hash).is_some_and(|before| std::mem::replace(before, true));
        shard.count_answer(sighting, was_answered_well);
    }

    /// Two subscriptions to one event are two paths, or else they look like one receiver that gets it twice.
    fn hash(&self, path: &str, id: &str) -> u64 {
        self.hasher.hash_one((path, id))
    }

    fn shard_of(&self, hash: u64) -> &Mutex<Shard> {
        &self.shards[usize::try_from(hash % SHARDS as u64).unwrap_or_default()]
    }

    pub(super) fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for shard in &self.shards {
            sum.add(&shard.lock().counts);
        }
        sum
    }

    pub(super) fn latencies(&self) -> Option<Percentiles> {
        let samples: Vec<Samples> = self.shards.iter().map(|shard| shard.lock().latencies.clone()).collect();
        Samples::percentiles(&samples)
    }

    pub(super) fn runs(&self) -> BTreeMap<Box<str>, Run> {
        let shards: Vec<_> = self.shards.iter().map(Mutex::lock).collect();
        let names = shards.iter().flat_map(|shard| shard.runs.keys().cloned());
        let mut runs: BTreeMap<Box<str>, Run> = names.map(|name| (name, Run::default())).collect();
        for (name, run) in &mut runs {
            let marks = shards.iter().map(|shard| shard.runs.get(name).map_or(&[][..], |marks| &marks.came));
            let marks: Vec<&[u64]> = marks.collect();
            let came = |number: usize| is_set(marks[number % SHARDS], number / SHARDS);
            let end = marks.iter().map(|words| words.len()).max().unwrap_or_default() * 64 * SHARDS;
            let highest = (0..end).rev().find(|number| came(*number)).unwrap_or_default();
            for number in 0..=highest {
                if came(number) {
                    run.came += 1;
                } else {
                    run.missing += 1;
                    if run.gaps.len() < SHOWN_GAPS {
                        run.gaps.push(number);
                    }
                }
            }
        }
        runs
    }
}

/// The run and the number of an event that `tidegate produce` made.
fn numbered(id: &str) -> Option<(&str, usize)> {
    let (run, number) = id.strip_prefix(super::super::produce::ID_PREFIX)?.split_once('_')?;
    let number = number.parse().ok().filter(|number| *number < LARGEST_NUMBER)?;
    Some((run, number))
}

impl Shard {
    /// `None`: there are too many runs already.
    fn run(&mut self, name: &str) -> Option<&mut Marks> {
        if !self.runs.contains_key(name) {
            if self.runs.len() >= MOST_RUNS {
                return None;
            }
            self.runs.insert(name.into(), Marks::default());
        }
        self.runs.get_mut(name)
    }

    fn note_id(&mut self, hash: u64, is_answered_well: bool) -> Sighting {
        let is_full = self.ids.len() >= MOST_IDS;
        match self.ids.get_mut(&hash) {
            Some(true) => Sighting::Duplicate,
            Some(before) => {
                *before = is_answered_well;
                Sighting::Retry
            }
            None => {
                if !is_full {
                    self.ids.insert(hash, is_answered_well);
                }
                Sighting::First
            }
        }
    }

    /// Of two calls with one id that are both answered well one is a duplicate, even if neither answer was out yet.
    fn count_answer(&mut self, sighting: Sighting, was_answered_well: bool) {
        self.counts.failed -= 1;
        if was_answered_well && sighting != Sighting::Duplicate {
            self.counts.retries -= 1;
            self.counts.duplicates += 1;
        }
    }

    fn count(&mut self, arrival: &Arrival<'_>, sighting: Sighting) {
        let counts = &mut self.counts;
        counts.received += 1;
        match sighting {
            Sighting::First => counts.distinct += u64::from(arrival.id.is_some()),
            Sighting::Retry => counts.retries += 1,
            Sighting::Duplicate => counts.duplicates += 1,
        }
        match arrival.is_verified {
            Some(true) => counts.verified += 1,
            Some(false) => counts.not_verified += 1,
            None => (),
        }
        counts.failed += u64::from(!arrival.is_answered_well);
        counts.first = Some(counts.first.map_or(arrival.at, |first| first.min(arrival.at)));
        counts.last = counts.last.max(arrival.at);
        if let Some(latency) = arrival.latency
            && sighting == Sighting::First
        {
            self.latencies.add(latency);
        }
    }
}

impl Marks {
    fn note(&mut self, place: usize, is_answered_well: bool) -> Sighting {
        let sighting = match (is_set(&self.came, place), is_set(&self.answered_well, place)) {
            (false, _) => Sighting::First,
            (true, false) => Sighting::Retry,
            (true, true) => Sighting::Duplicate,
        };
        set(&mut self.came, place);
        if is_answered_well {
            set(&mut self.answered_well, place);
        }
        sighting
    }
}

fn is_set(bits: &[u64], place: usize) -> bool {
    bits.get(place / 64).is_some_and(|word| word & (1 << (place % 64)) != 0)
}

fn set(bits: &mut Vec<u64>, place: usize) {
    if bits.len() <= place / 64 {
        bits.resize(place / 64 + 1, 0);
    }
    bits[place / 64] |= 1 << (place % 64);
}

impl Counts {
    /// From the first arrival to the last.
    pub(super) fn span(&self) -> Duration {
        self.first.map_or(Duration::ZERO, |first| self.last.saturating_sub(first))
    }

    fn add(&mut self, other: &Counts) {
        self.received += other.received;
        self.distinct += other.distinct;
        self.retries += other.retries;
        self.duplicates += other.duplicates;
        self.verified += other.verified;
        self.not_verified += other.not_verified;
        self.failed += other.failed;
        self.without_id += other.without_id;
        self.first = [self.first, other.first].into_iter().flatten().min();
        self.last = self.last.max(other.last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(ledger: &Ledger, path: &str, id: &str, is_answered_well: bool) -> Sighting {
        arrive(ledger, path, Some(id), is_answered_well)
    }

    fn arrive(ledger: &Ledger, path: &str, id: Option<&str>, is_answered_well: bool) -> Sighting {
        let at = Duration::ZERO;
        ledger.note(&Arrival { path, id, is_verified: None, is_answered_well, at, latency: None })
    }

    fn failed_retries_duplicates(ledger: &Ledger) -> (u64, u64, u64) {
        let counts = ledger.counts();
        (counts.failed, counts.retries, counts.duplicates)
    }

    /// A caller that left before its answer came back, and was shown as a duplicate after a success that nobody had heard of.
    #[test]
    fn a_late_answer_counts_when_it_has_gone_out() {
        for id in ["evt_1", "prd_run_7"] {
            let ledger = Ledger::default();
            let seen: Vec<Sighting> = (0..2).map(|_| note(&ledger, "/", id, false)).collect();
            assert_eq!(seen, [Sighting::First, Sighting::Retry], "nobody has heard an answer");
            assert_eq!(failed_retries_duplicates(&ledger), (2, 1, 0));
            ledger.answered("/", Some(id), Sighting::Retry);
            assert_eq!(failed_retries_duplicates(&ledger), (1, 1, 0), "the first caller has left");
            assert_eq!(note(&ledger, "/", id, false), Sighting::Duplicate);
            ledger.answered("/", Some(id), Sighting::Duplicate);
            assert_eq!(failed_retries_duplicates(&ledger), (1, 1, 1));
            assert_eq!(ledger.counts().distinct, 1);
        }
    }

    #[test]
    fn two_at_a_time_that_are_both_answered_well_are_a_duplicate() {
        for id in ["evt_1", "prd_run_7"] {
            for order in [[Sighting::First, Sighting::Retry], [Sighting::Retry, Sighting::First]] {
                let ledger = Ledger::default();
                let seen: Vec<Sighting> = (0..2).map(|_| note(&ledger, "/", id, false)).collect();
                assert_eq!(seen, [Sighting::First, Sighting::Retry]);
                order.into_iter().for_each(|sighting| ledger.answered("/", Some(id), sighting));
                assert_eq!(failed_retries_duplicates(&ledger), (0, 0, 1), "{order:?}");
            }
        }
    }

    #[test]
    fn a_late_answer_to_a_call_without_an_id_counts_too() {
        let ledger = Ledger::default();
        let sighting = arrive(&ledger, "/", None, false);
        assert_eq!(ledger.counts().failed, 1);
        ledger.answered("/", None, sighting);
        assert_eq!((ledger.counts().failed, ledger.counts().without_id), (0, 1));
    }

    #[test]
    fn again_after_failures_is_a_retry_and_after_a_success_a_duplicate() {
        for id in ["evt_1", "prd_run_7"] {
            let ledger = Ledger::default();
            let seen: Vec<Sighting> = [false, false, true, true].map(|ok| note(&ledger, "/", id, ok)).into();
            assert_eq!(seen, [Sighting::First, Sighting::Retry, Sighting::Retry, Sighting::Duplicate]);
            let counts = ledger.counts();
            assert_eq!((counts.received, counts.distinct, counts.retries, counts.duplicates), (4, 1, 2, 1));
            assert_eq!(counts.failed, 2);
        }
    }

    #[test]
    fn one_event_on_two_paths_is_no_duplicate() {
        let ledger = Ledger::default();
        assert_eq!(note(&ledger, "/a", "evt_1", true), Sighting::First);
        assert_eq!(note(&ledger, "/b", "evt_1", true), Sighting::First);
    }

    #[test]
    fn gaps_of_a_run_are_found() {
        let ledger = Ledger::default();
        for number in (0..1000).filter(|number| ![3, 17, 500].contains(number)) {
            note(&ledger, "/", &format!("prd_a_{number}"), true);
        }
        note(&ledger, "/", "prd_b_0", true);
        let runs = ledger.runs();
        assert_eq!(runs["a"], Run { came: 997, missing: 3, gaps: vec![3, 17, 500] });
        assert_eq!(runs["b"], Run { came: 1, missing: 0, gaps: vec![] });
    }

    #[test]
    fn ids_that_only_look_numbered_are_plain_ids() {
        let ledger = Ledger::default();
        for id in ["prd_", "prd_a", "prd_a_", "prd_a_x", "prd_a_-1", "prd_a_99999999999"] {
            assert_eq!(note(&ledger, "/", id, true), Sighting::First, "{id}");
            assert_eq!(note(&ledger, "/", id, true), Sighting::Duplicate, "{id}");
        }
        assert_eq!(ledger.runs(), BTreeMap::new());
    }
}
