//! Which headers a user may add to calls. Checked when they are written, so that a send cannot fail by them.
//!
//! Names and values are typed afterwards: CR, LF and NUL cannot be in them.

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, HeaderValue, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};

use super::Refused;

const LONGEST_NAME: usize = 128;
const LONGEST_VALUE: usize = 4096;

/// Takes a header as a user wrote it, or says what is wrong with it.
pub fn check_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), Refused> {
    if name.len() > LONGEST_NAME {
        return Err(Refused::new("header_name", format!("a header name has at most {LONGEST_NAME} characters")));
    }
    let name = HeaderName::try_from(name).map_err(|_| {
        Refused::new("header_name", "a header name is made of letters, digits and hyphens, and is not empty")
    })?;
    if is_framing(&name) {
        let detail = format!("{name} belongs to the connection and is set by Tidegate; leave it out");
        return Err(Refused::new("header_forbidden", detail));
    }
    if name.as_str().starts_with("webhook-") {
        let detail = format!("{name} is reserved: webhook- headers carry the id, time and signature");
        return Err(Refused::new("header_forbidden", detail));
    }
    if value.len() > LONGEST_VALUE {
        let detail = format!("the value of {name} has more than {LONGEST_VALUE} characters");
        return Err(Refused::new("header_value", detail));
    }
    let is_plain = |letter: u8| matches!(letter, b'\t' | b' '..=b'~');
    let checked = value.bytes().all(is_plain).then(|| HeaderValue::from_str(value).ok()).flatten();
    let value = checked.ok_or_else(|| {
        Refused::new("header_value", format!("the value of {name} may hold visible ASCII characters and spaces only"))
    })?;
    Ok((name, value))
}

/// Headers that say where a message ends or what a connection does: a second opinion about them smuggles requests.
pub(super) fn is_framing(name: &HeaderName) -> bool {
    [HOST, CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION, EXPECT, UPGRADE, TE, TRAILER].contains(name)
        || matches!(name.as_str(), "keep-alive" | "http2-settings")
        || name.as_str().starts_with("proxy-")
}
