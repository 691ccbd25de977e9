//! What is wrong with a query string, in words for whoever wrote it: the parameter, and what it may be.

use std::error::Error;

use axum::{extract::rejection::QueryRejection, http::StatusCode};
use serde::de::value;

use super::words;
use crate::problem::Problem;

/// Of a number that is none; the last is what Rust says of a number that is too large.
const NO_NUMBER: [&str; 3] = [
    "invalid digit found in string",
    "cannot parse integer from empty string",
    "number too large to fit in target type",
];

/// What is not text is read as another text by the parser, and a NUL by some databases only.
pub(super) fn require_text(query: &str) -> Result<(), Problem> {
    for pair in query.split('&').filter(|pair| pair.contains('%')) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decoded(name), decoded(value));
        let objection = match (str::from_utf8(&name), str::from_utf8(&value)) {
            (Ok(name), Ok(value)) if ![name, value].iter().any(|text| text.contains('\0')) => continue,
            (Ok(_), Ok(_)) => "holds a NUL character (%00): leave it out",
            _ => "is not UTF-8: write it so, before it is percent-encoded",
        };
        let name = String::from_utf8_lossy(&name);
        return Err(invalid(format!("{name} {objection}")).field(name));
    }
    Ok(())
}

fn decoded(text: &str) -> Vec<u8> {
    let (mut decoded, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [byte, behind @ ..] = rest {
        let digits = behind.get(..2).filter(|digits| *byte == b'%' && digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push(escaped.unwrap_or(*byte));
        rest = if escaped.is_some() { &behind[2..] } else { behind };
    }
    decoded
}

pub(super) fn problem(rejection: &QueryRejection) -> Problem {
    let found = std::iter::successors(rejection.source(), |&error| error.source())
        .find_map(|error| error.downcast_ref::<serde_path_to_error::Error<value::Error>>());
    let Some(found) = found else { return invalid("the query string could not be read") };
    let message = found.inner().to_string();
    if let Some((name, sentence)) = words::twice(&message) {
        return invalid(sentence).field(name);
    }
    let name = found.path().to_string();
    invalid(sentence(&name, &message)).field(name)
}

pub(super) fn invalid(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "invalid_query", detail)
}

fn sentence(name: &str, message: &str) -> String {
    if let Some(sentence) = words::choice(name, message) {
        return sentence;
    }
    match message.rsplit_once(", expected ") {
        Some((_, known)) if message.starts_with("unknown field") => {
            format!("there is no parameter {name:?} here; there are: {}", words::names(known))
        }
        _ if NO_NUMBER.iter().any(|words| message.contains(words)) => {
            format!("{name} must be a whole number, and not a huge one")
        }
        _ if message.contains("`true` or `false`") => format!("{name} must be true or false"),
        _ if message.ends_with(words::A_TIME) => {
            format!("{name} must be {} (in a URL, + is written %2B)", words::A_TIME)
        }
        _ => format!("{name}: {message}"),
    }
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
        #[serde(default, deserialize_with = "crate::http::utc")]
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

    #[test]
    fn what_is_no_text_is_named_before_anybody_is_asked_for_it() {
        for (query, field, detail) in [
            ("since=%00", "since", "since holds a NUL character (%00): leave it out"),
            ("limit=1&kind=a%00b&all=x", "kind", "kind holds a NUL character (%00): leave it out"),
            ("kind=%%00", "kind", "kind holds a NUL character (%00): leave it out"),
            ("kind=%FF", "kind", "kind is not UTF-8: write it so, before it is percent-encoded"),
            ("kind=%c3", "kind", "kind is not UTF-8: write it so, before it is percent-encoded"),
            ("k%00=a", "k\0", "k\0 holds a NUL character (%00): leave it out"),
            ("%ff", "\u{fffd}", "\u{fffd} is not UTF-8: write it so, before it is percent-encoded"),
        ] {
            let problem = serde_json::to_value(require_text(query).unwrap_err()).unwrap();
            assert_eq!((&problem["status"], &problem["code"]), (&400.into(), &"invalid_query".into()), "{problem}");
            assert_eq!((&problem["field"], &problem["detail"]), (&field.into(), &detail.into()), "{query}");
        }
        for text in ["", "after", "a=%2500", "a=%c3%a4", "a=ä", "a=100%", "a=%0", "a=%+0", "a=%0g&b=%zz", "a=%EF%BF%BD"]
        {
            assert!(require_text(text).is_ok(), "{text}");
        }
    }

    fn of(query: &str) -> serde_json::Value {
        let uri: Uri = format!("/?{query}").parse().unwrap();
        serde_json::to_value(problem(&Query::<Questions>::try_from_uri(&uri).unwrap_err())).unwrap()
    }
}
