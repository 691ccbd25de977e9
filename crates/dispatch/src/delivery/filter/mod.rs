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
mod strict;
#[cfg(test)]
mod tests;
mod value;

use platform::config::Invalid;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::{Value, json};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, schema::Schema},
};

pub use self::document::Document;
use self::{compile::compile, evaluate::Node, strict::Strict};

/// A filter written as JSON has at most so many bytes.
pub const MAX_BYTES: usize = 16 * 1024;
/// A filter asks at most so many questions.
pub const MAX_CONDITIONS: usize = 64;
/// `any`, `all` and `not` stand in each other at most so deep.
pub const MAX_DEPTH: usize = 8;

/// A checked content filter.
#[derive(Clone, Debug)]
pub struct Filter {
    written: Value,
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
    pub fn new(field: &str, written: Value) -> Result<Self, Invalid> {
        let (root, reads_data) = compile(field, &written)?;
        Ok(Filter { written, root, reads_data })
    }

    /// Reads a filter as it was stored or sent. A name that stands twice in one object is refused: one would be lost.
    pub fn parse(field: &str, json: &str) -> Result<Self, Invalid> {
        let Strict(written) = serde_json::from_str(json).map_err(|error| Invalid::new(field, error.to_string()))?;
        Filter::new(field, written)
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

    /// As it was written.
    pub fn as_json(&self) -> &Value {
        &self.written
    }
}

impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl Serialize for Filter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Filter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Strict(written) = Strict::deserialize(deserializer)?;
        Filter::new("filter", written).map_err(D::Error::custom)
    }
}

impl PartialSchema for Filter {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .description(Some("Paths into the event and the conditions on what is there; all of them must hold."))
            .examples([json!({"data.amount": {"gte": 100}, "data.country": ["DE", "FR"], "data.test": false})])
            .into()
    }
}

impl ToSchema for Filter {}
