//! The event as a filter sees it. Its data stays raw until the first filter asks, and is then parsed once.

use std::{borrow::Cow, cell::OnceCell};

use serde_json::Value;

use super::path::{Path, Root};

/// One event, asked about by any number of filters.
#[derive(Debug)]
pub struct Document<'a> {
    pub id: &'a str,
    pub event_type: &'a str,
    pub source: Option<&'a str>,
    pub ordering_key: Option<&'a str>,
    raw_data: &'a str,
    data: OnceCell<Result<Value, String>>,
}

impl<'a> Document<'a> {
    /// `data` is JSON as it came, for example `RawValue::get`.
    pub fn new(id: &'a str, event_type: &'a str, data: &'a str) -> Self {
        Document { id, event_type, source: None, ordering_key: None, raw_data: data, data: OnceCell::new() }
    }

    #[must_use]
    pub fn with_source(self, source: Option<&'a str>) -> Self {
        Document { source, ..self }
    }

    #[must_use]
    pub fn with_ordering_key(self, ordering_key: Option<&'a str>) -> Self {
        Document { ordering_key, ..self }
    }

    /// The data parsed, or why it cannot be: raw JSON may nest deeper or count higher than can be held.
    pub(super) fn data(&self) -> Result<&Value, &str> {
        let parse = || serde_json::from_str(self.raw_data).map_err(|error| error.to_string());
        self.data.get_or_init(parse).as_ref().map_err(String::as_str)
    }

    pub(super) fn find(&self, path: &Path) -> Option<Cow<'_, Value>> {
        let text = |text: &str| Cow::Owned(Value::from(text));
        match path.root() {
            Root::Id => Some(text(self.id)),
            Root::Type => Some(text(self.event_type)),
            Root::Source => self.source.map(text),
            Root::OrderingKey => self.ordering_key.map(text),
            Root::Data => path.walk(self.data().ok()?).map(Cow::Borrowed),
        }
    }
}
