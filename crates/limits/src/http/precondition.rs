//! `If-Match` and `If-None-Match` (RFC 9110, 13.1): what a writer says it saw, and whether it still is so.

use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use platform::problem::Problem;

/// The versions that one of the headers names.
#[derive(Debug, PartialEq, Eq)]
enum Named {
    Any,
    /// Tags that are not ours are left out: nothing here ever has them.
    OneOf(Vec<i64>),
}

impl Named {
    fn covers(&self, version: i64) -> bool {
        match self {
            Named::Any => true,
            Named::OneOf(versions) => versions.contains(&version),
        }
    }
}

/// What must be so before anything is changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Precondition {
    matching: Option<Named>,
    other_than: Option<Named>,
}

impl Precondition {
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, Problem> {
        // A weak tag says "much the same", which is not enough to write over it.
        let matching = named(headers, &header::IF_MATCH, false)?;
        Ok(Precondition { matching, other_than: named(headers, &header::IF_NONE_MATCH, true)? })
    }

    pub(super) fn is_some(&self) -> bool {
        self.matching.is_some() || self.other_than.is_some()
    }

    pub(super) fn needs_a_match(&self) -> bool {
        self.matching.is_some()
    }

    /// `version` of what is there, if anything is.
    pub(super) fn holds(&self, version: Option<i64>) -> bool {
        let covers = |named: &Named| version.is_some_and(|version| named.covers(version));
        self.matching.as_ref().is_none_or(covers) && !self.other_than.as_ref().is_some_and(covers)
    }
}

/// Is what the reader has still good?
pub(super) fn is_known(headers: &HeaderMap, version: i64) -> bool {
    named(headers, &header::IF_NONE_MATCH, true).is_ok_and(|named| named.is_some_and(|named| named.covers(version)))
}

fn named(headers: &HeaderMap, name: &HeaderName, takes_weak: bool) -> Result<Option<Named>, Problem> {
    if !headers.contains_key(name) {
        return Ok(None);
    }
    let mut versions = Vec::new();
    for line in headers.get_all(name) {
        let line = line.to_str().unwrap_or_default().trim();
        if line == "*" {
            return Ok(Some(Named::Any));
        }
        let tags = tags(line).ok_or_else(|| {
            let detail = format!("{name} holds ETags of the rule, each in its quotes, or *");
            Problem::new(StatusCode::BAD_REQUEST, "invalid_header", detail)
        })?;
        let ours = tags.into_iter().filter(|(is_weak, _)| takes_weak || !is_weak);
        versions.extend(ours.filter_map(|(_, tag)| tag.parse::<i64>().ok()));
    }
    Ok(Some(Named::OneOf(versions)))
}

/// The tags of a list, without their quotes, and whether they are weak; `None` if it is no such list.
fn tags(list: &str) -> Option<Vec<(bool, &str)>> {
    let (mut tags, mut rest) = (Vec::new(), list);
    loop {
        let (is_weak, quoted) = match rest.strip_prefix("W/") {
            Some(quoted) => (true, quoted),
            None => (false, rest),
        };
        let (tag, after) = quoted.strip_prefix('"')?.split_once('"')?;
        tags.push((is_weak, tag));
        match after.trim_start() {
            "" => return Some(tags),
            after => rest = after.strip_prefix(',')?.trim_start(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(name: HeaderName, value: &str) -> Result<Precondition, Problem> {
        Precondition::read(&HeaderMap::from_iter([(name, value.parse().unwrap())]))
    }

    #[test]
    fn if_match_holds_for_what_is_there_and_named() {
        let holds = |value: &str, version| reads(header::IF_MATCH, value).unwrap().holds(version);
        assert!(holds("*", Some(9)) && !holds("*", None));
        for list in [r#""9""#, r#""x", "9""#, r#""9","x,y""#, r#"W/"9" , "9""#] {
            assert!(holds(list, Some(9)) && !holds(list, Some(8)) && !holds(list, None), "{list}");
        }
        assert!(!holds(r#"W/"9""#, Some(9)), "a weak tag is not enough to write");
    }

    #[test]
    fn if_none_match_holds_for_what_is_not_there_or_not_named() {
        let holds = |value: &str, version| reads(header::IF_NONE_MATCH, value).unwrap().holds(version);
        assert!(!holds("*", Some(9)) && holds("*", None));
        assert!(!holds(r#""x", W/"9""#, Some(9)) && holds(r#""x", "9""#, Some(8)));
    }

    #[test]
    fn what_is_no_list_of_tags_is_a_problem() {
        for value in ["", "9", r#""9"#, r#""9" "8""#, r#""9","#, "*, *", "w/\"9\""] {
            assert!(reads(header::IF_MATCH, value).is_err(), "{value}");
        }
        assert!(!Precondition::read(&HeaderMap::new()).unwrap().is_some());
    }
}
