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

    /// The data parsed, or why it cannot be: raw JSON may nest deeper than can be held. What else cannot be held is mended.
    pub(super) fn data(&self) -> Result<&Value, &str> {
        let parse = || {
            let read = serde_json::from_str(self.raw_data).or_else(|_| serde_json::from_str(&mend(self.raw_data)));
            read.map_err(|error| error.to_string())
        };
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

/// JSON may hold halves of characters and numbers that no text and no `f64` can. Filters see the replacement character, and the
/// largest number there is: one such member must not hide all the others.
fn mend(json: &str) -> String {
    let mut mended = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(place) = rest.find(['"', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) {
        mended.push_str(&rest[..place]);
        rest = &rest[place..];
        let end = if rest.starts_with('"') { mend_text(rest, &mut mended) } else { mend_number(rest, &mut mended) };
        rest = &rest[end..];
    }
    mended + rest
}

/// The text that `json` begins with; returns where it ends.
fn mend_text(json: &str, mended: &mut String) -> usize {
    let unit = |place: usize| {
        let digits = json.get(place..place + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    mended.push('"');
    let (mut place, mut copied) = (1, 1);
    while let Some(found) = json.get(place..).and_then(|rest| rest.find(['"', '\\'])) {
        place += found;
        match unit(place) {
            _ if json[place..].starts_with('"') => {
                mended.push_str(&json[copied..=place]);
                return place + 1;
            }
            None => place += 2,
            Some(0xd800..=0xdbff) if unit(place + 6).is_some_and(|next| (0xdc00..=0xdfff).contains(&next)) => {
                place += 12
            }
            Some(0xd800..=0xdfff) => {
                mended.push_str(&json[copied..place]);
                mended.push('\u{fffd}');
                place += 6;
                copied = place;
            }
            Some(_) => place += 6,
        }
    }
    json.len()
}

/// The number that `json` begins with; returns where it ends.
fn mend_number(json: &str, mended: &mut String) -> usize {
    let end = json.find([',', ']', '}', ' ', '\n', '\r', '\t']).unwrap_or(json.len());
    match json[..end].parse::<f64>() {
        Ok(f64::INFINITY) => mended.push_str("1.7976931348623157e308"),
        Ok(f64::NEG_INFINITY) => mended.push_str("-1.7976931348623157e308"),
        _ => mended.push_str(&json[..end]),
    }
    end
}
