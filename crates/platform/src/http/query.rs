//! What is wrong with a query string, in words for whoever wrote it: the parameter, and what it may be.

use std::error::Error;

use axum::{extract::rejection::QueryRejection, http::StatusCode};
use serde::de::value;

use crate::problem::Problem;

/// Of a number that is none; the last is what Rust says of a number that is too large.
const NO_NUMBER: [&str; 3] = [
    "invalid digit found in string",
    "cannot parse integer from empty string",
    "number too large to fit in target type",
];
/// Of a time that is none.
const NO_TIME: [&str; 4] =
    ["component could not be parsed", "character literal was not valid", "in range", "trailing characters"];

pub(super) fn problem(rejection: &QueryRejection) -> Problem {
    let found = std::iter::successors(rejection.source(), |&error| error.source())
        .find_map(|error| error.downcast_ref::<serde_path_to_error::Error<value::Error>>());
    let Some(found) = found else { return invalid("the query string could not be read") };
    let message = found.inner().to_string();
    if let Some(twice) = message.strip_prefix("duplicate field ") {
        let name = twice.trim_matches('`');
        return invalid(format!("{name} is given more than once: give it once")).field(name);
    }
    let name = found.path().to_string();
    invalid(sentence(&name, &message)).field(name)
}

pub(super) fn invalid(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "invalid_query", detail)
}

fn sentence(name: &str, message: &str) -> String {
    let says = |words: &[&str]| words.iter().any(|words| message.contains(words));
    let allowed = message.rsplit_once(", expected ").map(|(_, allowed)| names(allowed));
    match allowed {
        Some(known) if message.starts_with("unknown field") => {
            format!("there is no parameter {name:?} here; there are: {known}")
        }
        Some(values) if message.starts_with("unknown variant") => format!("{name} must be one of: {values}"),
        _ if says(&NO_NUMBER) => format!("{name} must be a whole number, and not a huge one"),
        _ if says(&NO_TIME) => {
            format!("{name} must be a time such as 2026-11-15T08:00:00Z (in a URL, + is written %2B)")
        }
        _ if says(&["`true` or `false`"]) => format!("{name} must be true or false"),
        _ => format!("{name}: {message}"),
    }
}

/// "one of `a`, `b`" and "`a` or `b`" as "a, b".
fn names(expected: &str) -> String {
    expected.split('`').skip(1).step_by(2).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use axum::{extract::Query, http::Uri};
    use serde::Deserialize;
    use time::OffsetDateTime;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Replay,
        Purge,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its mistakes are tested")]
    struct Questions {
        kind: Option<Kind>,
        limit: Option<u32>,
        #[serde(default)]
        all: bool,
        #[serde(default, with = "time::serde::rfc3339::option")]
        since: Option<OffsetDateTime>,
    }

    #[test]
    fn a_mistake_names_the_parameter_and_what_it_may_be() {
        for (query, field, detail) in [
            ("kind=lost", "kind", "kind must be one of: replay, purge"),
            ("kind=%60a%60%2C+expected+%60b%60", "kind", "kind must be one of: replay, purge"),
            ("limit=many", "limit", "limit must be a whole number, and not a huge one"),
            ("limit=-1", "limit", "limit must be a whole number, and not a huge one"),
            ("limit=", "limit", "limit must be a whole number, and not a huge one"),
            ("limit=99999999999", "limit", "limit must be a whole number, and not a huge one"),
            ("all=maybe", "all", "all must be true or false"),
            ("sort=up", "sort", "there is no parameter \"sort\" here; there are: kind, limit, all, since"),
            ("limit=1&limit=2", "limit", "limit is given more than once: give it once"),
        ] {
            let problem = of(query);
            assert_eq!((&problem["status"], &problem["code"]), (&400.into(), &"invalid_query".into()), "{problem}");
            assert_eq!((&problem["field"], &problem["detail"]), (&field.into(), &detail.into()), "{query}");
        }
        for time in
            ["yesterday", "", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z", "2026-11-15", "2026-11-15T08:00:00"]
        {
            let problem = of(&format!("since={time}"));
            assert!(
                problem["detail"].as_str().unwrap().starts_with("since must be a time such as"),
                "{time}: {problem}"
            );
        }
        assert!(of("since=2026-11-15T08:00:00+01:00")["detail"].as_str().unwrap().contains("%2B"));
    }

    fn of(query: &str) -> serde_json::Value {
        let uri: Uri = format!("/?{query}").parse().unwrap();
        serde_json::to_value(problem(&Query::<Questions>::try_from_uri(&uri).unwrap_err())).unwrap()
    }
}
