//! Asks a compiled filter about an event. Total: every filter answers for every event.

use std::{cmp::Ordering, fmt, sync::Arc};

use serde_json::Value;

use super::{
    Document, Mismatch,
    path::Path,
    value::{Shown, is_equal, kind, order},
};

/// A compiled filter or a part of one.
#[derive(Clone, Debug)]
pub(super) enum Node {
    All(Box<[Node]>),
    Any(Box<[Node]>),
    Not(Box<Node>),
    Test { path: Arc<Path>, test: Test },
}

/// One question about one value.
#[derive(Clone, Debug)]
pub(super) enum Test {
    Equals(Value),
    In(Box<[Value]>),
    Compare(Comparison, Value),
    Exists(bool),
    StartsWith(Box<str>),
    EndsWith(Box<str>),
    /// A text has this part, or a list this item.
    Contains(Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Gt,
    Gte,
    Lt,
    Lte,
}

impl Comparison {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Comparison::Gt => "gt",
            Comparison::Gte => "gte",
            Comparison::Lt => "lt",
            Comparison::Lte => "lte",
        }
    }

    fn allows(self, order: Ordering) -> bool {
        match self {
            Comparison::Gt => order.is_gt(),
            Comparison::Gte => order.is_ge(),
            Comparison::Lt => order.is_lt(),
            Comparison::Lte => order.is_le(),
        }
    }
}

impl Node {
    pub(super) fn holds(&self, document: &Document<'_>) -> bool {
        match self {
            Node::All(nodes) => nodes.iter().all(|node| node.holds(document)),
            Node::Any(nodes) => nodes.iter().any(|node| node.holds(document)),
            Node::Not(node) => !node.holds(document),
            Node::Test { path, test } => test.holds(document.find(path).as_deref()),
        }
    }

    /// Adds every condition that keeps the event away.
    pub(super) fn explain(&self, document: &Document<'_>, mismatches: &mut Vec<Mismatch>) {
        let reason = match self {
            Node::All(nodes) => return nodes.iter().for_each(|node| node.explain(document, mismatches)),
            _ if self.holds(document) => return,
            Node::Any(nodes) => {
                let mut inner = Vec::new();
                nodes.iter().for_each(|node| node.explain(document, &mut inner));
                let mut reasons: Vec<String> = inner.into_iter().map(|mismatch| mismatch.reason).collect();
                reasons.dedup();
                reasons.join("; ")
            }
            Node::Not(node) => match &**node {
                Node::Test { path, .. } => found(path, document.find(path).as_deref()),
                _ => "all of that holds".to_owned(),
            },
            Node::Test { path, test } => test.objection(path, document.find(path).as_deref()),
        };
        mismatches.push(Mismatch { condition: self.to_string(), reason });
    }
}

impl Test {
    fn holds(&self, value: Option<&Value>) -> bool {
        let Some(value) = value else { return matches!(self, Test::Exists(false)) };
        match (self, value) {
            (Test::Exists(is_wanted), _) => *is_wanted,
            (Test::Equals(wanted), _) => is_equal(value, wanted),
            (Test::In(wanted), _) => wanted.iter().any(|wanted| is_equal(value, wanted)),
            (Test::Compare(comparison, bound), _) => order(value, bound).is_some_and(|order| comparison.allows(order)),
            (Test::StartsWith(start), Value::String(text)) => text.starts_with(&**start),
            (Test::EndsWith(end), Value::String(text)) => text.ends_with(&**end),
            (Test::Contains(Value::String(part)), Value::String(text)) => text.contains(part.as_str()),
            (Test::Contains(wanted), Value::Array(items)) => items.iter().any(|item| is_equal(item, wanted)),
            (Test::StartsWith(_) | Test::EndsWith(_) | Test::Contains(_), _) => false,
        }
    }

    /// Why this does not hold; a value of the wrong kind is named as such.
    fn objection(&self, path: &Path, value: Option<&Value>) -> String {
        let Some(value) = value else { return found(path, None) };
        let wanted = match self {
            Test::Compare(_, bound) if order(value, bound).is_none() => kind(bound),
            Test::StartsWith(_) | Test::EndsWith(_) if !value.is_string() => "a string",
            Test::Contains(_) if !value.is_string() && !value.is_array() => "a string or a list",
            _ => return found(path, Some(value)),
        };
        format!("{path} is {}, which is not {wanted}", Shown(value))
    }
}

fn found(path: &Path, value: Option<&Value>) -> String {
    match value {
        Some(value) => format!("{path} is {}", Shown(value)),
        None => format!("{path} is not in the event"),
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Node::All(nodes) => joined(f, nodes, " and "),
            Node::Any(nodes) => joined(f, nodes, " or "),
            Node::Not(node) => write!(f, "not ({node})"),
            Node::Test { path, test } => write!(f, "{path} {test}"),
        }
    }
}

fn joined(f: &mut fmt::Formatter<'_>, nodes: &[Node], word: &str) -> fmt::Result {
    for (place, node) in nodes.iter().enumerate() {
        let word = if place == 0 { "" } else { word };
        match node {
            Node::All(inner) | Node::Any(inner) if inner.len() > 1 => write!(f, "{word}({node})")?,
            _ => write!(f, "{word}{node}")?,
        }
    }
    Ok(())
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Test::Equals(value) => write!(f, "eq {}", Shown(value)),
            Test::In(values) => write!(f, "in {}", Shown(&Value::from(values.to_vec()))),
            Test::Compare(comparison, bound) => write!(f, "{} {}", comparison.as_str(), Shown(bound)),
            Test::Exists(is_wanted) => write!(f, "exists {is_wanted}"),
            Test::StartsWith(text) => write!(f, "starts_with {}", Shown(&Value::from(&**text))),
            Test::EndsWith(text) => write!(f, "ends_with {}", Shown(&Value::from(&**text))),
            Test::Contains(value) => write!(f, "contains {}", Shown(value)),
        }
    }
}
