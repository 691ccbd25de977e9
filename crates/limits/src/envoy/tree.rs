//! The descriptors of every domain, and the search through them.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use gate::limiter::Policy;

use super::{Entry, Unit};
use crate::seen::Meters;

/// Every domain of every file.
#[derive(Debug, Default)]
pub struct Domains {
    domains: HashMap<Box<str>, Domain>,
}

/// What one file describes.
#[derive(Debug, Default)]
pub struct Domain {
    pub(crate) root: Node,
}

/// One level of nested descriptors.
#[derive(Debug, Default)]
pub struct Node {
    /// What a descriptor that ends here is limited to.
    pub(crate) limit: Option<Arc<Limit>>,
    pub(crate) children: Children,
}

#[derive(Debug, Default)]
pub(crate) struct Children {
    /// By key, then value.
    pub(crate) valued: HashMap<Box<str>, HashMap<Box<str>, Node>>,
    /// By key: beginnings of values, in the order they were written.
    pub(crate) beginnings: HashMap<Box<str>, Vec<(Box<str>, Node)>>,
    /// By key alone.
    pub(crate) any: HashMap<Box<str>, Node>,
}

/// A configured limit.
#[derive(Debug)]
pub struct Limit {
    /// What metrics and answers call it: `domain.key_value.key`, as Envoy ratelimit does.
    pub path: Arc<str>,
    /// Its own name, which others may replace.
    pub name: Option<Arc<str>>,
    /// Where this limit speaks, limits with these names are silent.
    pub replaces: Vec<Arc<str>>,
    /// `None` is unlimited.
    pub rate: Option<Rate>,
    pub is_shadow: bool,
    /// Its metrics name the values of the request, not only the configured ones.
    pub is_detailed: bool,
    /// By depth: the pattern whose values share one counter, or `None` where each value has its own.
    pub shared: Vec<Option<Arc<str>>>,
    pub(crate) meters: OnceLock<Meters>,
}

/// So many per unit.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    pub requests_per_unit: u32,
    pub unit: Unit,
    /// `None`: a limit of 0, which lets nothing pass.
    pub policy: Option<Policy>,
}

impl Domains {
    pub fn get(&self, domain: &str) -> Option<&Domain> {
        self.domains.get(domain)
    }

    /// False if the domain is there already.
    pub(crate) fn insert(&mut self, name: Box<str>, domain: Domain) -> bool {
        self.domains.insert(name, domain).is_none()
    }
}

impl Domain {
    /// The limit of a descriptor, if one is configured at exactly its depth.
    pub fn find(&self, entries: &[Entry]) -> Option<&Arc<Limit>> {
        let mut node = &self.root;
        for entry in entries {
            node = node.children.find(entry)?;
        }
        if entries.is_empty() { None } else { node.limit.as_ref() }
    }
}

impl Children {
    fn find(&self, entry: &Entry) -> Option<&Node> {
        let valued = self.valued.get(entry.key.as_str()).and_then(|values| values.get(entry.value.as_str()));
        let begun = || {
            let beginnings = self.beginnings.get(entry.key.as_str())?;
            beginnings.iter().find(|(beginning, _)| entry.value.starts_with(&**beginning)).map(|(_, node)| node)
        };
        valued.or_else(begun).or_else(|| self.any.get(entry.key.as_str()))
    }
}
