//! Rules: what a key may do, and which rule speaks for it. Pure: `now` is an argument, nothing is read or written.
//!
//! [`Written`] is a rule as people write it, in a file or in a request. [`Rule`] is the same, checked and ready: a policy
//! of the gate for every key it speaks for. [`RuleSet`] finds the rule of a key.

mod calendar;
mod pattern;
mod set;
#[cfg(test)]
mod tests;
mod written;

use std::{
    collections::HashMap,
    num::NonZeroU64,
    sync::{Arc, OnceLock},
};

use gate::limiter::Policy;

use crate::seen::Meters;

pub(crate) use self::set::tried_with;
pub use self::{
    calendar::{Calendar, Every},
    pattern::Pattern,
    set::RuleSet,
    written::{Algorithm, Fallback, Override, Written},
};

/// Where a rule came from; those that come first win.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The API: one tenant's own.
    Api,
    /// `limits.rules_file`: every tenant's.
    File,
}

/// A rule, checked and ready.
#[derive(Debug)]
pub struct Rule {
    /// What answers call it by.
    pub name: Arc<str>,
    /// The same in JSON's quotes, and in those of a header.
    pub(crate) json_name: Box<str>,
    pub(crate) quoted_name: Box<str>,
    pub source: Source,
    pub pattern: Pattern,
    /// What a call costs that does not say it.
    pub cost: NonZeroU64,
    /// Counts and reports, but refuses nobody.
    pub is_shadow: bool,
    plan: Plan,
    overrides: HashMap<Box<str>, Plan>,
    /// Where its decisions are counted; found at the first.
    pub(crate) meters: OnceLock<Meters>,
}

/// How a key is counted: always alike, or as the calendar stands.
#[derive(Debug)]
pub(crate) enum Plan {
    Fixed(Policy),
    Quota(Box<calendar::Quota>),
}

impl Plan {
    fn policy(&self, now_us: u64) -> Policy {
        match self {
            Plan::Fixed(policy) => *policy,
            Plan::Quota(quota) => quota.policy(now_us),
        }
    }

    fn capacity(&self) -> u64 {
        match self {
            Plan::Fixed(policy) => policy.capacity(),
            Plan::Quota(quota) => quota.limit(),
        }
    }
}

impl Rule {
    /// How this key is counted now. The time matters to calendar quotas.
    pub fn policy(&self, key: &str, now_us: u64) -> Policy {
        self.overrides.get(key).unwrap_or(&self.plan).policy(now_us)
    }

    /// Does this very key have numbers of its own?
    pub fn has_override(&self, key: &str) -> bool {
        self.overrides.contains_key(key)
    }
}
