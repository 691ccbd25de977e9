//! Turns a filter as written into one that can be asked, or says what is wrong with it, where, and what to write.

use std::sync::Arc;

use platform::config::Invalid;
use serde_json::{Map, Value};

use super::{
    MAX_BYTES, MAX_CONDITIONS, MAX_DEPTH,
    evaluate::{Comparison, Node, Test},
    path::{Path, Root},
    value::kind,
};

const OPERATORS: &str = "eq, ne, in, gt, gte, lt, lte, exists, starts_with, ends_with, contains, not, any, all";

/// The compiled filter, and whether it reads the event's data.
pub(super) fn compile(field: &str, written: &Value) -> Result<(Node, bool), Invalid> {
    let bytes = written.to_string().len();
    if bytes > MAX_BYTES {
        return Err(Invalid::new(field, format!("a filter has at most {MAX_BYTES} bytes, this one has {bytes}")));
    }
    let mut compiler = Compiler { conditions: 0, reads_data: false };
    let root = compiler.filter(field, written, 0)?;
    Ok((root, compiler.reads_data))
}

struct Compiler {
    conditions: usize,
    reads_data: bool,
}

impl Compiler {
    /// An object of paths and joining words, all of which must hold.
    fn filter(&mut self, field: &str, written: &Value, depth: usize) -> Result<Node, Invalid> {
        let Value::Object(parts) = written else {
            return Err(Invalid::new(
                field,
                format!(
                    "this is {}: write an object of paths, such as {{\"data.amount\": {{\"gte\": 100}}}}",
                    kind(written)
                ),
            ));
        };
        check_depth(field, depth)?;
        let part = |(name, written): (&String, &Value)| {
            let field = member(field, name);
            match name.as_str() {
                "any" => self
                    .list(&field, written, |this, field, written| this.filter(field, written, depth + 1))
                    .map(Node::Any),
                "all" => self
                    .list(&field, written, |this, field, written| this.filter(field, written, depth + 1))
                    .map(Node::All),
                "not" => self.filter(&field, written, depth + 1).map(|node| Node::Not(node.into())),
                _ => {
                    let path = Arc::new(Path::parse(&field, name)?);
                    self.reads_data |= path.root() == Root::Data;
                    self.condition(&field, &path, written, depth + 1)
                }
            }
        };
        Ok(all(parts.iter().map(part).collect::<Result<_, _>>()?))
    }

    /// What is asked about one path: a value, a list of values, or an object of operators.
    fn condition(&mut self, field: &str, path: &Arc<Path>, written: &Value, depth: usize) -> Result<Node, Invalid> {
        match written {
            Value::Array(_) => self.test(field, path, in_list(field, written)?),
            Value::Object(operators) => self.operators(field, path, operators, depth),
            _ => self.test(field, path, Test::Equals(written.clone())),
        }
    }

    fn operators(
        &mut self,
        field: &str,
        path: &Arc<Path>,
        operators: &Map<String, Value>,
        depth: usize,
    ) -> Result<Node, Invalid> {
        check_depth(field, depth)?;
        if operators.is_empty() {
            return Err(Invalid::new(
                field,
                "there is no operator: write one such as {\"gte\": 100}, or {\"eq\": {}} for an empty object",
            ));
        }
        let operator = |(name, written): (&String, &Value)| {
            let field = member(field, name);
            let deeper =
                |this: &mut Self, field: &str, written: &Value| this.condition(field, path, written, depth + 1);
            match name.as_str() {
                "any" => self.list(&field, written, deeper).map(Node::Any),
                "all" => self.list(&field, written, deeper).map(Node::All),
                "not" => deeper(self, &field, written).map(|node| Node::Not(node.into())),
                "ne" => {
                    let equals = self.test(&field, path, Test::Equals(written.clone()))?;
                    Ok(Node::Not(equals.into()))
                }
                _ => self.test(&field, path, test(&field, name, written)?),
            }
        };
        Ok(all(operators.iter().map(operator).collect::<Result<_, _>>()?))
    }

    fn list(
        &mut self,
        field: &str,
        written: &Value,
        read: impl Fn(&mut Self, &str, &Value) -> Result<Node, Invalid>,
    ) -> Result<Box<[Node]>, Invalid> {
        match written {
            Value::Array(items) if !items.is_empty() => {
                items.iter().enumerate().map(|(place, item)| read(self, &format!("{field}[{place}]"), item)).collect()
            }
            _ => Err(Invalid::new(
                field,
                format!("this is {}: write a list with at least one entry", described(written)),
            )),
        }
    }

    fn test(&mut self, field: &str, path: &Arc<Path>, test: Test) -> Result<Node, Invalid> {
        self.conditions += 1;
        if self.conditions > MAX_CONDITIONS {
            return Err(Invalid::new(
                field,
                format!("a filter has at most {MAX_CONDITIONS} conditions: use `in` for lists of values"),
            ));
        }
        Ok(Node::Test { path: path.clone(), test })
    }
}

fn test(field: &str, operator: &str, written: &Value) -> Result<Test, Invalid> {
    Ok(match operator {
        "eq" => Test::Equals(written.clone()),
        "in" => in_list(field, written)?,
        "gt" => Test::Compare(Comparison::Gt, bound(field, written)?),
        "gte" => Test::Compare(Comparison::Gte, bound(field, written)?),
        "lt" => Test::Compare(Comparison::Lt, bound(field, written)?),
        "lte" => Test::Compare(Comparison::Lte, bound(field, written)?),
        "exists" => match written {
            Value::Bool(is_wanted) => Test::Exists(*is_wanted),
            _ => return Err(wrong_kind(field, written, "true or false")),
        },
        "starts_with" => Test::StartsWith(text(field, written)?),
        "ends_with" => Test::EndsWith(text(field, written)?),
        "contains" => Test::Contains(written.clone()),
        _ => {
            return Err(Invalid::new(
                field,
                format!(
                    "{operator:?} is not an operator: use one of {OPERATORS}; to look into an object write one path, such as \"data.customer.country\""
                ),
            ));
        }
    })
}

fn in_list(field: &str, written: &Value) -> Result<Test, Invalid> {
    match written {
        Value::Array(values) if !values.is_empty() => Ok(Test::In(values.as_slice().into())),
        _ => Err(wrong_kind(field, written, "a list of the values to take")),
    }
}

fn bound(field: &str, written: &Value) -> Result<Value, Invalid> {
    match written {
        Value::Number(_) | Value::String(_) => Ok(written.clone()),
        _ => Err(wrong_kind(field, written, "a number, or a string such as a date")),
    }
}

fn text(field: &str, written: &Value) -> Result<Box<str>, Invalid> {
    match written {
        Value::String(text) => Ok(text.as_str().into()),
        _ => Err(wrong_kind(field, written, "a string")),
    }
}

fn wrong_kind(field: &str, written: &Value, wanted: &str) -> Invalid {
    Invalid::new(field, format!("this is {}: write {wanted}", described(written)))
}

fn described(written: &Value) -> &'static str {
    match written {
        Value::Array(items) if items.is_empty() => "an empty list",
        _ => kind(written),
    }
}

fn check_depth(field: &str, depth: usize) -> Result<(), Invalid> {
    if depth > MAX_DEPTH {
        return Err(Invalid::new(field, format!("conditions stand in each other at most {MAX_DEPTH} deep")));
    }
    Ok(())
}

fn all(mut nodes: Vec<Node>) -> Node {
    match nodes.pop() {
        Some(only) if nodes.is_empty() => only,
        Some(last) => {
            nodes.push(last);
            Node::All(nodes.into())
        }
        None => Node::All(Box::default()),
    }
}

/// `filter["data.amount"].gte`: names with dots are quoted, so that the place can be read.
fn member(field: &str, name: &str) -> String {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_plain { format!("{field}.{name}") } else { format!("{field}[{name:?}]") }
}
