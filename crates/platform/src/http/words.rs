//! What serde says of a mistake, in words for whoever made it: no type of ours, no name of a library.

/// What a text is to be that is no time.
pub(super) const A_TIME: &str = "a time such as 2026-11-15T08:00:00Z";

/// What is given twice, and the sentence about it.
pub(super) fn twice(message: &str) -> Option<(String, String)> {
    let name = unquoted(message.strip_prefix("duplicate field ")?);
    Some((name.to_owned(), format!("{name} is given more than once: give it once")))
}

/// What `subject` can be, where that is one of a few words.
pub(super) fn choice(subject: &str, message: &str) -> Option<String> {
    let (_, known) = message.strip_prefix("unknown variant ")?.rsplit_once(", expected ")?;
    Some(format!("{subject} must be one of: {}", names(known)))
}

/// "one of `a`, `b`" and "`a` or `b`" as "a, b".
pub(super) fn names(expected: &str) -> String {
    expected.split('`').skip(1).step_by(2).collect::<Vec<_>>().join(", ")
}

pub(super) fn unquoted(name: &str) -> &str {
    name.trim_matches('`')
}
