//! A request that is whole and has nothing unusual: POST, HTTP/1.1, one content-length, readable headers. Pure.

use httparse::{EMPTY_HEADER, Header, Status};

/// Headers of a plain request.
const MOST_HEADERS: usize = 24;
pub(super) const NO_HEADERS: [Header<'static>; MOST_HEADERS] = [EMPTY_HEADER; MOST_HEADERS];

/// What says that a message or its connection is to be handled in another way than by reading its length and its body.
const UNUSUAL: [&str; 6] = ["transfer-encoding", "expect", "upgrade", "te", "trailer", "http2-settings"];

/// A request that came whole, with nothing in it that needs the ordinary server.
pub struct Plain<'a> {
    target: &'a str,
    headers: &'a [Header<'a>],
    body: &'a [u8],
}

impl<'a> Plain<'a> {
    /// The first request in `bytes`, and how many of them it is.
    pub(super) fn read(
        bytes: &'a [u8],
        headers: &'a mut [Header<'a>; MOST_HEADERS],
        max_body: usize,
    ) -> Option<(Plain<'a>, usize)> {
        let mut parsed = httparse::Request::new(headers);
        let Ok(Status::Complete(head)) = parsed.parse(bytes) else { return None };
        if parsed.method != Some("POST") || parsed.version != Some(1) {
            return None;
        }
        let (target, headers) = (parsed.path?, parsed.headers);
        let mut length = None;
        for header in headers.iter() {
            if !header.value.iter().all(|byte| matches!(byte, b' '..=b'~')) {
                return None;
            }
            if header.name.eq_ignore_ascii_case("content-length") {
                if length.is_some() {
                    return None;
                }
                length = Some(number(header.value)?);
            }
            let is_unusual = match header.name.eq_ignore_ascii_case("connection") {
                true => !header.value.eq_ignore_ascii_case(b"keep-alive"),
                false => UNUSUAL.iter().any(|name| header.name.eq_ignore_ascii_case(name)),
            };
            if is_unusual {
                return None;
            }
        }
        let end = head.checked_add(length.filter(|length| *length <= max_body)?)?;
        Some((Plain { target, headers, body: bytes.get(head..end)? }, end))
    }

    /// The path with its query, as it was sent.
    pub fn target(&self) -> &'a str {
        self.target
    }

    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.nth_header(name, 0)
    }

    /// One of the values of a header, from 0.
    pub fn nth_header(&self, name: &str, place: usize) -> Option<&'a str> {
        let header = self.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name)).nth(place)?;
        std::str::from_utf8(header.value).ok()
    }

    pub fn body(&self) -> &'a [u8] {
        self.body
    }
}

/// Digits and nothing else, as few as a small number has.
fn number(text: &[u8]) -> Option<usize> {
    let is_number = (1..=9).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(text).ok()?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(String, Vec<u8>, usize)> {
        let mut headers = NO_HEADERS;
        let (plain, length) = Plain::read(text.as_bytes(), &mut headers, 100)?;
        Some((plain.target().to_owned(), plain.body().to_owned(), length))
    }

    #[test]
    fn a_plain_request_ends_where_its_length_says() {
        let text = "POST /a?b=c HTTP/1.1\r\nHost: x\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\n{}POST";
        assert_eq!(read(text), Some(("/a?b=c".to_owned(), b"{}".to_vec(), text.len() - 4)));
    }

    #[test]
    fn whatever_could_be_read_in_two_ways_is_not_plain() {
        for head in [
            "GET / HTTP/1.1\r\ncontent-length: 2",
            "POST / HTTP/1.0\r\ncontent-length: 2",
            "POST / HTTP/1.1\r\nhost: x",
            "POST / HTTP/1.1\r\ncontent-length: 2\r\ncontent-length: 2",
            "POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2",
            "POST / HTTP/1.1\r\ncontent-length: 2, 2",
            "POST / HTTP/1.1\r\ncontent-length: +2",
            "POST / HTTP/1.1\r\ncontent-length: 0x2",
            "POST / HTTP/1.1\r\ncontent-length: 3",
            "POST / HTTP/1.1\r\ncontent-length: 18446744073709551615",
            "POST / HTTP/1.1\r\ncontent-length : 2",
            "POST / HTTP/1.1\r\ncontent-length: 2\r\ntransfer-encoding: chunked",
            "POST / HTTP/1.1\r\ncontent-length: 2\r\nTransfer-Encoding: identity",
            "POST / HTTP/1.1\r\ncontent-length: 2\r\nexpect: 100-continue",
            "POST / HTTP/1.1\r\ncontent-length: 2\r\nconnection: close",
            "POST / HTTP/1.1\r\ncontent-length: 2\r\nconnection: upgrade\r\nupgrade: h2c",
            "POST / HTTP/1.1\r\ncontent-length: 2\r\nx-folded: a\r\n b",
            "POST / HTTP/1.1\r\ncontent-length: 2\r\nx-bytes: \u{e9}",
        ] {
            assert_eq!(read(&format!("{head}\r\n\r\n{{}}")), None, "{head}");
        }
        let many = "x-many: 1\r\n".repeat(MOST_HEADERS);
        assert_eq!(read(&format!("POST / HTTP/1.1\r\ncontent-length: 2\r\n{many}\r\n{{}}")), None);
        assert_eq!(read(&format!("POST / HTTP/1.1\r\ncontent-length: 101\r\n\r\n{}", "x".repeat(101))), None);
        assert_eq!(read("POST / HTTP/1.1\r\ncontent-le"), None);
    }
}
