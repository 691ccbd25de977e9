//! Envoy ratelimit's own configuration: domains of nested descriptors, and the limit that a request's descriptor finds.
//! Pure. The search is Envoy's: an entry's `key` and `value`, then a value with `*` at its end, then the `key` alone; a
//! limit counts only at the full depth of the descriptor.

#[cfg(test)]
mod tests;
mod tree;
mod unit;
mod yaml;

pub(crate) use self::yaml::parse;
pub use self::{
    tree::{Domain, Domains, Limit, Node, Rate},
    unit::Unit,
};

/// One part of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    pub value: String,
}

/// One of the things a request is counted by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    pub entries: Vec<Entry>,
    /// What the request costs here; 1 if absent, and 0 only looks.
    pub hits: Option<u64>,
    /// A limit that the request brings along instead of the configured one.
    pub limit: Option<Override>,
}

/// A limit that a request brings along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Override {
    pub requests_per_unit: u32,
    pub unit: Unit,
}
