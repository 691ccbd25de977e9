//! How JSON values compare: numbers by value (1 equals 1.0, and no integer loses digits), text by its bytes.

use std::{cmp::Ordering, fmt};

use serde_json::{Number, Value};

/// Values are shown to people up to this many characters.
const SHOWN: usize = 80;

pub(super) fn is_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => order_of_numbers(one, other) == Some(Ordering::Equal),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let has = |(name, value)| other.get(name).is_some_and(|other| is_equal(value, other));
            one.len() == other.len() && one.iter().all(has)
        }
        _ => one == other,
    }
}

/// The order of two numbers or two texts; nothing else has one.
pub(super) fn order(one: &Value, other: &Value) -> Option<Ordering> {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => order_of_numbers(one, other),
        (Value::String(one), Value::String(other)) => Some(one.cmp(other)),
        _ => None,
    }
}

fn order_of_numbers(one: &Number, other: &Number) -> Option<Ordering> {
    match (one.as_i128(), other.as_i128()) {
        (Some(one), Some(other)) => Some(one.cmp(&other)),
        (Some(one), None) => order_with_float(one, other.as_f64()?),
        (None, Some(other)) => order_with_float(other, one.as_f64()?).map(Ordering::reverse),
        (None, None) => one.as_f64()?.partial_cmp(&other.as_f64()?),
    }
}

/// Exact where `integer as f64` would round.
fn order_with_float(integer: i128, float: f64) -> Option<Ordering> {
    #[expect(clippy::cast_possible_truncation, reason = "it saturates, and every integer in JSON is far from the ends")]
    let whole = float.trunc() as i128;
    match integer.cmp(&whole) {
        Ordering::Equal => 0.0.partial_cmp(&float.fract()),
        unequal => Some(unequal),
    }
}

/// What a value is, in words.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A value for people: JSON, cut where it gets long.
pub(super) struct Shown<'a>(pub(super) &'a Value);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            // Long lists and objects are not written out only to be cut.
            Value::Array(items) if items.len() > SHOWN / 2 => write!(f, "a list of {} items", items.len()),
            Value::Object(fields) if fields.len() > SHOWN / 8 => write!(f, "an object of {} fields", fields.len()),
            Value::String(text) if text.chars().nth(SHOWN).is_some() => {
                let start: String = text.chars().take(SHOWN).collect();
                write!(f, "{}… ({} bytes)", Value::from(start), text.len())
            }
            value => {
                let text = value.to_string();
                match text.char_indices().nth(SHOWN) {
                    Some((end, _)) => write!(f, "{}…", &text[..end]),
                    None => f.write_str(&text),
                }
            }
        }
    }
}
