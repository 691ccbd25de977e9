//! What is wrong with a body, in words for whoever wrote it: the field, and what it may be.

use std::io;

use axum::http::StatusCode;
use serde::de::{DeserializeSeed, IgnoredAny};
use serde_path_to_error::Track;

use super::words;
use crate::problem::Problem;

/// Which field is wrong costs more to know than to read the body; only what is wrong is read for that.
pub(super) fn problem<'de, S: DeserializeSeed<'de> + Clone>(body: &[u8], seed: S, cause: serde_json::Error) -> Problem {
    if !cause.is_data()
        && let Some(broken) = broken(body, &cause)
    {
        return Problem::new(StatusCode::BAD_REQUEST, "invalid_json", format!("the body is not JSON: {broken}"));
    }
    let (cause, path) = no_choice(body, seed.clone(), &cause).unwrap_or_else(|| (cause, read(body, b"", seed).1));
    let (detail, name) = in_words(&cause);
    let field = match (path.as_str(), name) {
        (".", name) => name,
        (path, Some(name)) => Some(format!("{path}.{name}")),
        (path, None) => Some(path.to_owned()),
    };
    let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_field", detail);
    field.into_iter().fold(problem, Problem::field)
}

/// Reads it again, with something behind it: what is wrong, and where. Both are read by one kind of deserializer: each further one
/// would put the code of every body into the binary once more.
fn read<'de, S: DeserializeSeed<'de>>(body: &[u8], behind: &[u8], seed: S) -> (Option<serde_json::Error>, String) {
    let mut deserializer = serde_json::Deserializer::from_reader(io::Read::chain(body, behind));
    let mut track = Track::new();
    let read = seed.deserialize(serde_path_to_error::Deserializer::new(&mut deserializer, &mut track));
    (read.err(), track.path().to_string())
}

/// Why a body is not JSON at all. serde_json also takes some JSON of the wrong type for a mistake of syntax.
fn broken(body: &[u8], cause: &serde_json::Error) -> Option<String> {
    let skipped = serde_json::from_slice::<IgnoredAny>(body);
    // What is skipped may be in another encoding.
    skipped.err().map(|error| error.to_string()).or_else(|| str::from_utf8(body).is_err().then(|| cause.to_string()))
}

/// A number where one of a few words belongs is such a mistake, which does not tell the words. A wrong word in its place does.
fn no_choice<'de, S: DeserializeSeed<'de>>(
    body: &[u8],
    seed: S,
    cause: &serde_json::Error,
) -> Option<(serde_json::Error, String)> {
    if !cause.is_syntax() {
        return None;
    }
    let lines = body.split_inclusive(|byte| *byte == b'\n').take(cause.line().saturating_sub(1));
    let before = (lines.map(<[u8]>::len).sum::<usize>() + cause.column()).checked_sub(1)?;
    let (error, path) = read(body.get(..before)?, br#""""#, seed);
    error.filter(|error| error.to_string().starts_with("unknown variant ")).map(|error| (error, path))
}

/// A mistake in a body. The name is of a field that is not there, or there twice, in the object where that was noticed.
fn in_words(error: &serde_json::Error) -> (String, Option<String>) {
    let text = error.to_string();
    // Line and column say nothing beside the field's name.
    let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message);
    if let Some(name) = message.strip_prefix("missing field ").map(words::unquoted) {
        return (format!("{name} is needed"), Some(name.to_owned()));
    }
    if let Some((name, sentence)) = words::twice(message) {
        return (sentence, Some(name));
    }
    let sentence = match message {
        "recursion limit exceeded" => "it nests too deep: send it flatter".to_owned(),
        // In a text that is JSON.
        "lone leading surrogate in hex escape" | "unexpected end of hex escape" => {
            r"it holds half a character: \ud800 to \udfff come in pairs".to_owned()
        }
        _ => words::choice("it", message).unwrap_or_else(|| kinds(message)),
    };
    (sentence, None)
}

/// The kinds of values as JSON calls them.
fn kinds(message: &str) -> String {
    let Some((found, expected)) = message.rsplit_once(", expected ") else { return message.to_owned() };
    let found = match found {
        "invalid type: sequence" => "invalid type: array",
        "invalid type: map" => "invalid type: object",
        found => found,
    };
    let expected = match expected {
        "a sequence" => "an array",
        "a map" => "an object",
        name if name.starts_with("struct ") => "an object",
        "a boolean" => "true or false",
        "unit" => "null",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, not negative and not a huge one",
        "f64" => "a number",
        expected => expected,
    };
    format!("{found}, expected {expected}")
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use time::OffsetDateTime;

    use crate::http::{Object, parse_json, parse_json_array, utc};

    /// serde_json calls it a mistake of syntax, and the caller was told that the body is not JSON.
    #[test]
    fn what_is_not_even_a_word_where_one_of_a_few_belongs_is_told_the_words() {
        #[derive(Debug, Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Kind {
            Replay,
            Purge,
        }

        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "only its mistakes are tested")]
        struct Job {
            name: Option<String>,
            kind: Option<Kind>,
            kinds: Option<Vec<Kind>>,
        }

        let problem = |body: &str| serde_json::to_value(parse_json::<Job>(body.as_bytes()).unwrap_err()).unwrap();
        for value in ["5", "-5.5e3", "true", "{}", "{ }", "{\"lost\":1}", "[]", "[\"replay\"]", "\"lost\"", "\"\""] {
            for (body, field) in [
                (format!(r#"{{"kind":{value}}}"#), "kind"),
                (format!("{{\"name\": \"ä\\n\",\n\r\n \"kind\" : {value}\n, \"kinds\":[]}}"), "kind"),
                (format!(r#"{{"kinds":["purge", {value}, "replay"],"kind":7}}"#), "kinds[1]"),
            ] {
                let problem = problem(&body);
                assert_eq!((&problem["status"], &problem["field"]), (&422.into(), &field.into()), "{body}: {problem}");
                assert_eq!(problem["detail"], "it must be one of: replay, purge", "{body}");
            }
            let cut = problem(&format!(r#"{{"kind":{value},"name":"#));
            let code = if value.starts_with('"') || value.contains("lost") { "invalid_field" } else { "invalid_json" };
            assert_eq!(cut["code"], code, "{value}: {cut}");
        }
        assert_eq!(problem("{\"kind\":5,\"name\":\"\u{ff}\"}")["field"], "kind");
        let other_encoding = parse_json::<Job>(b"{\"kind\":5,\"name\":\"\xff\"}").unwrap_err();
        assert_eq!(other_encoding.code(), "invalid_json");
    }

    #[test]
    fn a_detail_names_no_type_of_ours() {
        #[derive(Debug, Deserialize)]
        #[expect(dead_code, reason = "only its mistakes are tested")]
        struct Settings {
            limit: u32,
            tags: Vec<String>,
            enabled: bool,
            #[serde(default, deserialize_with = "utc")]
            at: Option<OffsetDateTime>,
            filter: serde_json::Value,
        }

        let number = "expected a whole number, not negative and not a huge one";
        for (body, field, detail) in [
            (r#"{"limit":-1}"#, "limit", &*format!("invalid value: integer `-1`, {number}")),
            (r#"{"limit":1.5}"#, "limit", &format!("invalid type: floating point `1.5`, {number}")),
            (r#"{"limit":1e999}"#, "limit", "number out of range"),
            (r#"{"tags":{}}"#, "tags", "invalid type: object, expected an array"),
            (r#"{"tags":["\ud800"]}"#, "tags[0]", r"it holds half a character: \ud800 to \udfff come in pairs"),
            (
                r#"{"tags":", expected u8 at line 1"}"#,
                "tags",
                r#"invalid type: string ", expected u8 at line 1", expected an array"#,
            ),
            (r#"{"enabled":1}"#, "enabled", "invalid type: integer `1`, expected true or false"),
            (r#"{"at":5}"#, "at", "invalid type: integer `5`, expected a string"),
            (r#"{"at":"tomorrow"}"#, "at", "it must be a time such as 2026-11-15T08:00:00Z"),
            (r#"{"at":""}"#, "at", "it must be a time such as 2026-11-15T08:00:00Z"),
            (r#"{"limit":1,"limit":2}"#, "limit", "limit is given more than once: give it once"),
            (r#"{"limit":1}"#, "tags", "tags is needed"),
        ] {
            let problem = serde_json::to_value(parse_json::<Settings>(body.as_bytes()).unwrap_err()).unwrap();
            assert_eq!((&problem["field"], &problem["detail"]), (&field.into(), &detail.into()), "{body}");
        }
        let deep = format!(r#"{{"filter":{}1{}}}"#, "[".repeat(200), "]".repeat(200));
        let deep = parse_json::<Settings>(deep.as_bytes()).unwrap_err();
        assert_eq!((deep.code(), deep.detail()), ("invalid_field", "it nests too deep: send it flatter"));
        let inner = parse_json_array::<Object<Settings>>(br#"[{"limit":1,"limit":2}]"#, 9).err().unwrap();
        assert_eq!(inner.wrong_field(), Some("[0].limit"));
    }
}
