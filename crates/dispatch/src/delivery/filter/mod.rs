//! Content filters: which events a subscription wants, by what is in them.
//!
//! `{"data.amount": {"gte": 100}, "data.country": ["DE", "FR"], "data.test": false}` wants all three to hold. A path starts
//! at `id`, `type`, `source`, `ordering_key` or `data`; its condition is a value (equal), a list (one of) or operators:
//! `eq ne in gt gte lt lte exists starts_with ends_with contains not any all`. `any`, `all` and `not` also join whole
//! filters. What is not in the event equals nothing, not even `null`, so `ne` and `not` hold for it.
//! A filter is checked and bounded when it is written; then it can be asked about any event and never fails.

mod compile;
mod document;
mod evaluate;
mod path;
#[cfg(test)]
mod tests;
mod value;
mod written;

use platform::config::Invalid;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use self::{compile::compile, evaluate::Node};
pub use self::{document::Document, written::Written};

/// A filter written as JSON has at most so many bytes.
pub const MAX_BYTES: usize = 16 * 1024;
/// A filter asks at most so many questions.
pub const MAX_CONDITIONS: usize = 64;
/// `any`, `all` and `not` stand in each other at most so deep.
pub const MAX_DEPTH: usize = 8;

/// A checked content filter.
#[derive(Clone, Debug)]
pub struct Filter {
    root: Node,
    /// Whether `data` must be parsed to answer.
    reads_data: bool,
}

/// A condition that does not hold, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Mismatch {
    /// The condition in words.
    #[schema(example = "data.amount gte 100")]
    pub condition: String,
    /// What the event has instead.
    #[schema(example = "data.amount is 40")]
    pub reason: String,
}

impl Filter {
    /// Checks and compiles. `field` starts the path of what is wrong, such as `filter["data.amount"].gte`.
    pub fn new(field: &str, written: &Value) -> Result<Self, Invalid> {
        let (root, reads_data) = compile(field, written)?;
        Ok(Filter { root, reads_data })
    }

    /// Does the subscription want this event?
    pub fn matches(&self, document: &Document<'_>) -> bool {
        if self.reads_data && document.data().is_err() {
            return false;
        }
        self.root.holds(document)
    }

    /// Every condition that keeps this event away; none if the filter matches.
    pub fn explain(&self, document: &Document<'_>) -> Vec<Mismatch> {
        if self.reads_data
            && let Err(error) = document.data()
        {
            let reason = format!("the event's data cannot be read: {error}");
            return vec![Mismatch { condition: "data can be read".to_owned(), reason }];
        }
        let mut mismatches = Vec::new();
        self.root.explain(document, &mut mismatches);
        mismatches
    }
}
