//! Many rules, and the one that speaks for a key.
//!
//! An exact key wins over a pattern, a longer literal beginning over a shorter one, then the rule that was written first.
//! Exact keys are found by one hash; patterns by one hash for each length of beginnings that occurs.

use std::{collections::HashMap, sync::Arc};

use super::{Pattern, Rule};

#[derive(Debug, Default)]
pub struct RuleSet {
    exact: HashMap<Box<str>, Vec<Arc<Rule>>>,
    /// By what their keys begin with, each in the order they were written.
    patterns: HashMap<Box<[u8]>, Vec<Arc<Rule>>>,
    /// The lengths of those beginnings, longest first.
    lengths: Vec<usize>,
}

impl RuleSet {
    /// `rules` in the order they were written.
    pub fn new(rules: impl IntoIterator<Item = Arc<Rule>>) -> Self {
        let mut set = RuleSet::default();
        for rule in rules {
            if rule.pattern.is_exact() {
                set.exact.entry(rule.pattern.as_str().into()).or_default().push(rule);
            } else {
                set.patterns.entry(rule.pattern.prefix().as_bytes().into()).or_default().push(rule);
            }
        }
        set.lengths = set.patterns.keys().map(|prefix| prefix.len()).collect();
        set.lengths.sort_unstable_by(|a, b| b.cmp(a));
        set.lengths.dedup();
        set
    }

    /// The rule that speaks for this key.
    pub fn find(&self, key: &str) -> Option<&Arc<Rule>> {
        if let Some(rule) = self.exact.get(key).and_then(|rules| rules.first()) {
            return Some(rule);
        }
        self.fitting(key).next()
    }

    /// Every rule that fits, the one that speaks first.
    pub fn all(&self, key: &str) -> Vec<&Arc<Rule>> {
        self.exact.get(key).into_iter().flatten().chain(self.fitting(key)).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.patterns.is_empty()
    }

    fn fitting<'a, 'k>(&'a self, key: &'k str) -> impl Iterator<Item = &'a Arc<Rule>> + use<'a, 'k> {
        let beginnings = self.lengths.iter().filter_map(|length| key.as_bytes().get(..*length));
        let candidates = beginnings.filter_map(|beginning| self.patterns.get(beginning)).flatten();
        candidates.filter(|rule| rule.pattern.matches(key))
    }
}

/// How many patterns may have to be tried on one key that `new` is tried on: those whose beginnings begin with each other.
pub(crate) fn tried_with<'a>(new: &'a Pattern, others: impl Iterator<Item = &'a Pattern>) -> usize {
    let own = new.prefix();
    let near = |other: &&str| other.starts_with(own) || own.starts_with(other);
    let others = others.filter(|other| other.is_searched()).map(Pattern::prefix).filter(near);
    let mut beginnings: Vec<&str> = others.chain(new.is_searched().then_some(own)).collect();
    beginnings.sort_unstable();
    let (mut before, mut most) = (Vec::new(), 0);
    for beginning in beginnings {
        while before.last().is_some_and(|shorter| !beginning.starts_with(shorter)) {
            before.pop();
        }
        before.push(beginning);
        most = most.max(before.len());
    }
    most
}
