//! Event types such as `order.created`, and the globs that subscriptions name them by.
//!
//! A type is segments of `A-Z a-z 0-9 _ -` joined by dots. In a glob, `*` stands for exactly one segment and `**` for any
//! number of them, none included; every other segment stands for itself.
//! Matching returns to the last `**` at most once per segment of the type, so no glob is slow.

use std::fmt;

use platform::config::Invalid;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use utoipa::ToSchema;

#[cfg(test)]
mod tests;

/// Types and globs are at most this long.
pub const MAX_LENGTH: usize = 128;
/// A subscription names at most this many globs.
pub const MAX_GLOBS: usize = 100;
/// An objection names so many globs at most.
const SHOWN_GLOBS: usize = 5;

/// What an event is about, checked: `order.created`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, ToSchema)]
#[schema(value_type = String, example = "order.created")]
pub struct EventType(Box<str>);

impl EventType {
    /// `field` is named in the error.
    pub fn parse(field: &str, text: &str) -> Result<Self, Invalid> {
        check_length(field, text)?;
        for segment in text.split('.') {
            if segment == "*" || segment == "**" {
                return Err(Invalid::new(field, format!("{text:?} is a pattern: an event has one exact type")));
            }
            check_segment(field, text, segment)?;
        }
        Ok(EventType(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for EventType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for EventType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        EventType::parse("type", &text).map_err(|error| D::Error::custom(error.problem))
    }
}

/// One pattern, compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    written: Box<str>,
    segments: Box<[Segment]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(Box<str>),
    /// `*`
    One,
    /// `**`
    AnyNumber,
}

impl Glob {
    /// `field` is named in the error.
    pub fn parse(field: &str, text: &str) -> Result<Self, Invalid> {
        check_length(field, text)?;
        let mut segments = Vec::new();
        for segment in text.split('.') {
            match segment {
                "*" => segments.push(Segment::One),
                // Two in a row say no more than one.
                "**" if segments.last() == Some(&Segment::AnyNumber) => (),
                "**" => segments.push(Segment::AnyNumber),
                _ if segment.contains('*') => {
                    return Err(Invalid::new(
                        field,
                        format!(
                            "{segment:?} in {text:?} is no segment of a glob: one is `*` (any one), `**` (any number) or a whole word"
                        ),
                    ));
                }
                _ => {
                    check_segment(field, text, segment)?;
                    segments.push(Segment::Literal(segment.into()));
                }
            }
        }
        Ok(Glob { written: text.into(), segments: segments.into() })
    }

    pub fn as_str(&self) -> &str {
        &self.written
    }

    /// It is a type, and takes no other.
    pub fn is_exact(&self) -> bool {
        self.segments.iter().all(|segment| matches!(segment, Segment::Literal(_)))
    }

    /// The word it begins with: whoever wrote it had certain types in mind.
    pub fn first_word(&self) -> Option<&str> {
        match self.segments.first() {
            Some(Segment::Literal(word)) => Some(word),
            _ => None,
        }
    }

    /// The glob with `**` for its last `*`, if it ends in one.
    fn widened(&self) -> Option<Glob> {
        let Some((Segment::One, start)) = self.segments.split_last() else { return None };
        let segments = start.iter().cloned().chain([Segment::AnyNumber]).collect();
        Some(Glob { written: format!("{}*", self.written).into(), segments })
    }

    pub fn matches(&self, event_type: &EventType) -> bool {
        let mut place = 0;
        let mut rest = Some(event_type.as_str());
        // Where to go on when it turns out that the last `**` must take one segment more.
        let mut last_any: Option<(usize, &str)> = None;
        while let Some(text) = rest {
            let (segment, tail) = first_segment(text);
            let is_match = match self.segments.get(place) {
                Some(Segment::AnyNumber) => {
                    place += 1;
                    last_any = Some((place, text));
                    continue;
                }
                Some(Segment::One) => true,
                Some(Segment::Literal(literal)) => **literal == *segment,
                None => false,
            };
            if is_match {
                place += 1;
                rest = tail;
                continue;
            }
            let Some((after_any, from)) = last_any else { return false };
            place = after_any;
            rest = first_segment(from).1;
            last_any = rest.map(|from| (after_any, from));
        }
        self.segments[place..].iter().all(|segment| *segment == Segment::AnyNumber)
    }
}

/// The globs of one subscription: it takes an event if any of them does.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(value_type = Vec<String>, example = json!(["order.*", "invoice.**"]))]
pub struct Matcher(Box<[Glob]>);

impl Matcher {
    /// `field` is named in the error, with the place in the list.
    pub fn parse<T: AsRef<str>>(field: &str, globs: &[T]) -> Result<Self, Invalid> {
        if globs.is_empty() {
            return Err(Invalid::new(field, "the list is empty: name at least one type, or \"**\" for all of them"));
        }
        if globs.len() > MAX_GLOBS {
            let count = globs.len();
            return Err(Invalid::new(
                field,
                format!("{count} patterns are too many: write at most {MAX_GLOBS}, `*` and `**` cover several types"),
            ));
        }
        let read = |(place, text): (usize, &T)| Glob::parse(&format!("{field}[{place}]"), text.as_ref());
        globs.iter().enumerate().map(read).collect::<Result<_, _>>().map(Matcher)
    }

    pub fn matches(&self, event_type: &EventType) -> bool {
        self.first_match(event_type).is_some()
    }

    /// The first glob that takes this type: the reason why the subscription receives it.
    pub fn first_match(&self, event_type: &EventType) -> Option<&Glob> {
        self.0.iter().find(|glob| glob.matches(event_type))
    }

    /// The same, of globs whose first segment is a word: who takes everything did not name it.
    pub fn first_naming(&self, event_type: &EventType) -> Option<&Glob> {
        self.0.iter().find(|glob| glob.first_word().is_some() && glob.matches(event_type))
    }

    /// Why the subscription does not receive this type, in words; `None` if it does.
    pub fn objection(&self, event_type: &EventType) -> Option<String> {
        if self.matches(event_type) {
            return None;
        }
        let shown: Vec<&str> = self.0.iter().take(SHOWN_GLOBS).map(Glob::as_str).collect();
        let more = if self.0.len() > SHOWN_GLOBS { ", …" } else { "" };
        // The commonest surprise is a `*` that was meant as a `**`.
        let would = self.0.iter().find_map(|glob| glob.widened().filter(|wide| wide.matches(event_type)));
        let hint =
            would.map(|wide| format!("; `*` is exactly one segment, {} would", wide.as_str())).unwrap_or_default();
        Some(format!("none of {}{more} takes {event_type}{hint}", shown.join(", ")))
    }

    pub fn globs(&self) -> &[Glob] {
        &self.0
    }
}

impl Serialize for Matcher {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(Glob::as_str))
    }
}

impl<'de> Deserialize<'de> for Matcher {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let globs = Vec::<String>::deserialize(deserializer)?;
        Matcher::parse("event_types", &globs).map_err(D::Error::custom)
    }
}

fn first_segment(text: &str) -> (&str, Option<&str>) {
    text.split_once('.').map_or((text, None), |(segment, tail)| (segment, Some(tail)))
}

fn check_length(field: &str, text: &str) -> Result<(), Invalid> {
    if text.is_empty() {
        return Err(Invalid::new(field, "it is empty: write a type such as \"order.created\""));
    }
    if text.len() > MAX_LENGTH {
        let length = text.len();
        return Err(Invalid::new(field, format!("{length} characters are too many: write at most {MAX_LENGTH}")));
    }
    Ok(())
}

fn check_segment(field: &str, text: &str, segment: &str) -> Result<(), Invalid> {
    if segment.is_empty() {
        return Err(Invalid::new(
            field,
            format!("{text:?} has an empty segment: write words joined by single dots, such as \"order.created\""),
        ));
    }
    match segment.chars().find(|letter| !letter.is_ascii_alphanumeric() && !matches!(letter, '_' | '-')) {
        None => Ok(()),
        Some(letter) => Err(Invalid::new(
            field,
            format!("{letter:?} is not allowed in {text:?}: use letters, digits, `_`, `-`, and dots between segments"),
        )),
    }
}
