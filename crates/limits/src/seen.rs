//! Who was limited: counters per rule, the keys that were checked and refused most, and a sample of decisions in the log.
//!
//! All of it is bounded: so many rules have a counter of their own, so many keys per tenant are remembered. A full table
//! forgets the rarer half of its keys at once, so that a key costs the same however many pass by. Who comes later may be
//! one of the forgotten and begins with the highest of their counts, which is its possible error. Whoever makes up more
//! than one part in [`MOST_KEYS`] of the traffic is always in the table.

use std::{collections::HashMap, mem, sync::Arc};

use metrics::Counter;
use parking_lot::Mutex;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    engine::MOST_KEY_BYTES,
    metrics::{KEYS_UNSEEN, RULE_DECISIONS, TENANTS_FORGOTTEN},
};

/// Rules with a counter of their own; the others share one.
const MOST_NAMES: usize = 200;
/// Keys that are remembered, per tenant and order; up to twice as many until the rarer half is forgotten.
const MOST_KEYS: usize = 256;
/// Tenants whose keys are remembered; one more, and the half that asked less since the last time is forgotten.
const MOST_TENANTS: usize = 1_000;

/// What came of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Allowed,
    Denied,
    /// It would have been, and passed.
    ShadowDenied,
}

/// One rule's counters.
#[derive(Debug)]
pub(crate) struct Meters {
    allowed: Counter,
    denied: Counter,
    shadow_denied: Counter,
}

/// A key and how often it came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Count {
    #[schema(example = "login:203.0.113.7")]
    pub(crate) key: String,
    /// How often it was checked or refused, by this replica, since it started.
    pub(crate) count: u64,
    /// The count may be too high by so much.
    pub(crate) error: u64,
}

/// What this replica has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    names: Mutex<Vec<Arc<str>>>,
    tenants: Mutex<HashMap<Arc<str>, Arc<Mutex<Tables>>>>,
}

#[derive(Debug, Default)]
struct Tables {
    /// Decisions since tenants were last forgotten.
    recent: u64,
    checked: Table,
    denied: Table,
}

#[derive(Debug, Default)]
struct Table {
    /// How often a key came, and by how much that may be too high.
    counts: HashMap<Box<str>, (u64, u64)>,
    /// How often a key that is not here may have come.
    forgotten: u64,
}

impl Seen {
    pub(crate) fn note(&self, tenant: &str, key: &str, meters: &Meters, outcome: Outcome) {
        let counter = match outcome {
            Outcome::Allowed => &meters.allowed,
            Outcome::Denied => &meters.denied,
            Outcome::ShadowDenied => &meters.shadow_denied,
        };
        counter.increment(1);
        let tables = self.tables(tenant);
        // A statistic is not worth waiting for.
        let Some(mut tables) = tables.try_lock() else {
            metrics::counter!(KEYS_UNSEEN).increment(1);
            return;
        };
        // What Envoy sends as a descriptor may be longer than any key.
        let key = &key[..key.floor_char_boundary(MOST_KEY_BYTES)];
        tables.recent += 1;
        tables.checked.count(key);
        if outcome != Outcome::Allowed {
            tables.denied.count(key);
        }
    }

    /// The keys that came most, the most frequent first.
    pub(crate) fn top(&self, tenant: &str, by_denied: bool, limit: usize) -> Vec<Count> {
        let Some(tables) = self.tenants.lock().get(tenant).cloned() else { return Vec::new() };
        let tables = tables.lock();
        let table = if by_denied { &tables.denied } else { &tables.checked };
        table.top(limit)
    }

    fn tables(&self, tenant: &str) -> Arc<Mutex<Tables>> {
        let mut tenants = self.tenants.lock();
        if let Some(tables) = tenants.get(tenant) {
            return Arc::clone(tables);
        }
        if tenants.len() >= MOST_TENANTS {
            forget_quiet(&mut tenants);
        }
        Arc::clone(tenants.entry(tenant.into()).or_default())
    }

    /// The counters of a rule with this name.
    pub(crate) fn meters(&self, name: &str) -> Meters {
        let mut names = self.names.lock();
        let is_known = names.iter().any(|known| **known == *name);
        let has_own = is_known || names.len() < MOST_NAMES;
        if has_own && !is_known {
            names.push(name.into());
        }
        let name = if has_own { name.to_owned() } else { "other".to_owned() };
        let counter =
            |result: &'static str| metrics::counter!(RULE_DECISIONS, "rule" => name.clone(), "result" => result);
        Meters { allowed: counter("allowed"), denied: counter("denied"), shadow_denied: counter("shadow_denied") }
    }
}

/// Deleted tenants ask nothing any more, so they go first.
fn forget_quiet(tenants: &mut HashMap<Arc<str>, Arc<Mutex<Tables>>>) {
    let recent = tenants.iter().map(|(tenant, tables)| (mem::take(&mut tables.lock().recent), Arc::clone(tenant)));
    let mut recent: Vec<_> = recent.collect();
    let (quiet, ..) = recent.select_nth_unstable(MOST_TENANTS / 2);
    quiet.iter().for_each(|(_, tenant)| drop(tenants.remove(tenant)));
    metrics::counter!(TENANTS_FORGOTTEN).increment(quiet.len() as u64);
}

impl Table {
    fn count(&mut self, key: &str) {
        if let Some((count, _)) = self.counts.get_mut(key) {
            *count += 1;
            return;
        }
        if self.counts.len() >= 2 * MOST_KEYS {
            self.forget_half();
        }
        self.counts.insert(key.into(), (self.forgotten + 1, self.forgotten));
    }

    fn forget_half(&mut self) {
        let mut counts: Vec<u64> = self.counts.values().map(|(count, _)| *count).collect();
        let middle = counts.len() / 2;
        self.forgotten = *counts.select_nth_unstable(middle).1;
        self.counts.retain(|_, (count, _)| *count > self.forgotten);
    }

    fn top(&self, limit: usize) -> Vec<Count> {
        let mut all = Vec::with_capacity(self.counts.len());
        for (key, (count, error)) in &self.counts {
            all.push(Count { key: key.as_ref().to_owned(), count: *count, error: *error });
        }
        all.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.key.cmp(&b.key)));
        all.truncate(limit);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(checks: impl IntoIterator<Item = (String, String)>) -> Seen {
        let seen = Seen::default();
        let meters = seen.meters("rule");
        for (tenant, key) in checks {
            seen.note(&tenant, &key, &meters, Outcome::Denied);
        }
        seen
    }

    #[test]
    fn a_late_tenant_is_seen_and_those_that_ask_nothing_any_more_are_forgotten() {
        let early = (0..MOST_TENANTS).flat_map(|number| [number; 3]).map(|number| format!("early-{number}"));
        let late = (0..2 * MOST_TENANTS).flat_map(|number| [format!("late-{number}"), "busy".to_owned()]);
        let seen = seen(early.chain(late).map(|tenant| (tenant, "key".to_owned())));
        assert_eq!(seen.top("late-1999", true, 1)[0].count, 1);
        assert_eq!(seen.top("busy", false, 1)[0].count, 2 * MOST_TENANTS as u64, "who asks all the time is kept");
        assert!(seen.top("early-0", true, 1).is_empty());
        assert!(seen.tenants.lock().len() <= MOST_TENANTS);
    }

    #[test]
    fn what_is_longer_than_a_key_is_cut() {
        let seen = seen([("t".to_owned(), "ä".repeat(100_000)), ("t".to_owned(), format!("a{}", "ä".repeat(100_000)))]);
        let lengths: Vec<usize> = seen.top("t", false, 2).iter().map(|count| count.key.len()).collect();
        assert_eq!(lengths, [MOST_KEY_BYTES - 1, MOST_KEY_BYTES]);
    }

    #[test]
    fn frequent_keys_stay_however_many_others_pass_by() {
        let mut table = Table::default();
        for round in 0..20_000 {
            table.count(&format!("once-{round}"));
            if round % 10 == 0 {
                table.count("often");
            }
        }
        assert!(table.counts.len() <= 2 * MOST_KEYS);
        let top = table.top(MOST_KEYS);
        let often = top.iter().find(|count| count.key == "often").expect("a tenth of the traffic is kept");
        assert!(often.count >= 2_000 && often.count - often.error <= 2_000, "{often:?}");
    }
}
