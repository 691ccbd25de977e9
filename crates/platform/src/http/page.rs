//! The pages that lists come in, and where the next one begins.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::query;
use crate::{id, problem::Problem};

/// Which part of a list: newest first, `limit` at a time, after the last id seen. Ids that are made here sort by time; where
/// callers choose ids of their own, a list is in their order, the last first.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// How many to return, 1 to 1000.
    #[serde(default)]
    #[param(default = 50, minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
    /// The `next` of the page before.
    #[serde(default)]
    pub after: Option<String>,
}

/// How many a caller wants of a list: 50 unless it says so, 1 to `most`.
pub fn limit_within(limit: Option<u32>, most: u32) -> Result<u32, Problem> {
    let limit = limit.unwrap_or(50);
    if (1..=most).contains(&limit) {
        return Ok(limit);
    }
    Err(query::invalid(format!("limit must be from 1 to {most}")).field("limit"))
}

/// Where a list of ids that are made here goes on: behind one of these, whether it is still there or not.
pub fn cursor<'a>(after: Option<&'a str>, prefix: &str) -> Result<Option<&'a str>, Problem> {
    match after {
        Some(after) if !id::is_made(prefix, after) => Err(no_cursor()),
        after => Ok(after),
    }
}

/// The same of a list whose ids callers may choose.
pub fn cursor_of_chosen(after: Option<&str>) -> Result<Option<&str>, Problem> {
    after.map(id::check).transpose().map_err(|_| no_cursor())
}

/// What was passed as `after` is no place in that list.
pub fn no_cursor() -> Problem {
    query::invalid("after is no place in this list: pass the `next` of the page before, or leave it out").field("after")
}

impl PageQuery {
    pub fn limit(&self) -> Result<u32, Problem> {
        limit_within(self.limit, 1000)
    }
}

/// One page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub struct Page<T> {
    pub data: Vec<T>,
    /// Pass it as `after` to get the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// From up to `limit + 1` rows: the extra row only tells that there is more.
    pub fn from_rows(mut rows: Vec<T>, limit: u32, id: impl Fn(&T) -> &str) -> Self {
        let limit = limit as usize;
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let next = if has_more { rows.last().map(|row| id(row).to_owned()) } else { None };
        Page { data: rows, next }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;

    #[test]
    fn a_cursor_is_an_id_of_its_list_whether_it_is_still_there_or_not() {
        let made = id::new("dlv");
        assert_eq!(cursor(Some(&made), "dlv").unwrap(), Some(made.as_str()));
        assert_eq!(cursor_of_chosen(Some("hook-1")).unwrap(), Some("hook-1"));
        assert!(cursor(None, "dlv").unwrap().is_none() && cursor_of_chosen(None).unwrap().is_none());
        let own = ["", "garbage!", "Hook"].map(|after| cursor_of_chosen(Some(after)));
        let made = [("", "dlv"), ("hook-1", "dlv"), ("dlv_", "dlv"), (&*made, "evt")]
            .map(|(after, of)| cursor(Some(after), of));
        for wrong in own.into_iter().chain(made) {
            let problem = wrong.unwrap_err();
            assert_eq!((problem.status(), problem.wrong_field()), (StatusCode::BAD_REQUEST, Some("after")));
        }
    }

    #[test]
    fn a_page_has_a_next_only_when_there_is_more() {
        let page = Page::from_rows(vec!["c".to_owned(), "b".to_owned(), "a".to_owned()], 2, |id| id);
        assert_eq!(page.next.as_deref(), Some("b"));
        let page = Page::from_rows(vec!["c".to_owned(), "b".to_owned()], 2, |id| id);
        assert_eq!(page.next, None);
    }
}
