//! Paths into an event: `data.items[0].sku` or `data.items.0.sku`; a dot that belongs to a name is written `\.`.

use std::fmt;

use platform::config::Invalid;
use serde_json::Value;

const MAX_LENGTH: usize = 256;
const MAX_STEPS: usize = 32;

/// Where a path starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Root {
    Id,
    Type,
    Source,
    OrderingKey,
    Data,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// A name; as digits it is also a place in a list.
    Name(Box<str>),
    /// `[0]`: only a place in a list.
    Place(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path {
    written: Box<str>,
    root: Root,
    steps: Box<[Step]>,
}

impl Path {
    pub(super) fn parse(field: &str, text: &str) -> Result<Self, Invalid> {
        let invalid = |problem: String| Invalid::new(field, problem);
        if text.len() > MAX_LENGTH {
            return Err(invalid(format!("a path has at most {MAX_LENGTH} characters, this one has {}", text.len())));
        }
        let mut steps = split(text).map_err(|problem| invalid(format!("{text:?} {problem}")))?;
        if steps.len() > MAX_STEPS {
            return Err(invalid(format!("a path has at most {MAX_STEPS} steps, this one has {}", steps.len())));
        }
        let root = match &steps[0] {
            Step::Name(name) => root(name),
            Step::Place(_) => None,
        };
        let Some(root) = root else {
            return Err(invalid(format!(
                "{text:?} does not start at the event: write \"data.{text}\", or start with `id`, `type`, `source` or `ordering_key`; filters are joined with `any`, `all` or `not`"
            )));
        };
        steps.remove(0);
        if root != Root::Data && !steps.is_empty() {
            return Err(invalid(format!("{text:?} leads nowhere: only `data` has parts")));
        }
        Ok(Path { written: text.into(), root, steps: steps.into() })
    }

    pub(super) fn root(&self) -> Root {
        self.root
    }

    pub(super) fn walk<'v>(&self, data: &'v Value) -> Option<&'v Value> {
        self.steps.iter().try_fold(data, |value, step| match (step, value) {
            (Step::Name(name), Value::Object(fields)) => fields.get(&**name),
            (Step::Name(name), Value::Array(items)) => items.get(place(name)?),
            (Step::Place(place), Value::Array(items)) => items.get(*place),
            _ => None,
        })
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

fn root(name: &str) -> Option<Root> {
    Some(match name {
        "id" => Root::Id,
        "type" => Root::Type,
        "source" => Root::Source,
        "ordering_key" => Root::OrderingKey,
        "data" => Root::Data,
        _ => return None,
    })
}

fn place(digits: &str) -> Option<usize> {
    // `parse` alone would take "+1".
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

/// The steps of a path, at least one; or what is wrong with it.
fn split(text: &str) -> Result<Vec<Step>, &'static str> {
    let mut steps = Vec::new();
    let mut letters = text.chars();
    let mut name = String::new();
    // After `]` a name is over, and only a dot, another bracket or the end may follow.
    let mut is_closed = false;
    loop {
        let letter = letters.next();
        match letter {
            None | Some('.' | '[') => {
                if !is_closed {
                    steps.push(named(std::mem::take(&mut name))?);
                }
                is_closed = false;
                match letter {
                    None => return Ok(steps),
                    Some('[') => {
                        steps.push(bracket(&mut letters)?);
                        is_closed = true;
                    }
                    _ => (),
                }
            }
            Some(_) if is_closed => return Err("has letters after `]`: write a dot between"),
            Some('\\') => name.push(letters.next().ok_or("ends with `\\`: write `\\\\` for a backslash in a name")?),
            Some(letter) => name.push(letter),
        }
    }
}

fn named(name: String) -> Result<Step, &'static str> {
    match name.as_str() {
        "" => Err("has an empty step: write names joined by single dots, such as \"data.amount\""),
        "*" | "**" => Err("has a `*`: name one place, such as \"data.items[0]\", or use `contains` on the whole list"),
        _ => Ok(Step::Name(name.into())),
    }
}

fn bracket(letters: &mut std::str::Chars<'_>) -> Result<Step, &'static str> {
    let rest = letters.as_str();
    let found = rest.split_once(']').and_then(|(digits, tail)| Some((place(digits)?, tail)));
    match found {
        Some((place, tail)) => {
            *letters = tail.chars();
            Ok(Step::Place(place))
        }
        None => {
            Err("has a bad `[`: write a place in a list such as \"data.items[0]\", or `\\[` for a bracket in a name")
        }
    }
}
