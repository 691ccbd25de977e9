//! Where the body of an answer ends (RFC 9112, section 6.3): rules, no I/O.

use bytes::{Buf, BytesMut};
use http::{
    HeaderMap, HeaderName, StatusCode,
    header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING},
};
use memchr::memchr;

/// Of a chunk's size with whatever a receiver adds to it, and of a trailer.
const LONGEST_LINE: usize = 4 << 10;

/// What is still to come of a body.
#[derive(Debug, PartialEq)]
pub(super) enum Framing {
    /// So many bytes.
    Length(u64),
    Chunked(Chunk),
    /// Whatever comes until the receiver closes.
    UntilClose,
}

/// Where in a chunked body the next byte belongs.
#[derive(Debug, PartialEq)]
pub(super) enum Chunk {
    Size,
    /// So many bytes, and the end of the line behind them.
    Data(u64),
    DataEnd,
    Trailer,
}

/// What `take` found.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    More,
    End,
    /// It is not what its head said.
    Broken,
}

impl Framing {
    /// `None`: the head contradicts itself, and two readers could see two answers in it.
    pub(super) fn of(status: StatusCode, is_http10: bool, headers: &HeaderMap) -> Option<Framing> {
        if status.is_informational() || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED {
            return Some(Framing::Length(0));
        }
        if let Some(last) = headers.get_all(TRANSFER_ENCODING).iter().next_back() {
            let is_chunked = last.as_bytes().rsplit(|byte| *byte == b',').next().is_some_and(is_word(b"chunked"));
            return match is_http10 {
                true => None,
                false if is_chunked => Some(Framing::Chunked(Chunk::Size)),
                false => Some(Framing::UntilClose),
            };
        }
        let mut lengths = headers.get_all(CONTENT_LENGTH).iter().map(|value| digits(value.as_bytes(), 10));
        match lengths.next() {
            None => Some(Framing::UntilClose),
            Some(first) => first.filter(|_| lengths.all(|other| other == first)).map(Framing::Length),
        }
    }

    /// Takes what has come of the body out of `input`.
    pub(super) fn take(&mut self, input: &mut BytesMut, mut data: impl FnMut(&[u8])) -> Step {
        let mut part = |input: &mut BytesMut, left: u64| {
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
            data(&input[..count]);
            input.advance(count);
            left - count as u64
        };
        loop {
            match self {
                Framing::UntilClose => {
                    part(input, u64::MAX);
                    return Step::More;
                }
                Framing::Length(left) => {
                    *left = part(input, *left);
                    return if *left == 0 { Step::End } else { Step::More };
                }
                Framing::Chunked(chunk) => {
                    let next = match chunk {
                        Chunk::Data(0) => Chunk::DataEnd,
                        Chunk::Data(_) if input.is_empty() => return Step::More,
                        Chunk::Data(left) => Chunk::Data(part(input, *left)),
                        Chunk::Size | Chunk::DataEnd | Chunk::Trailer => match line(input) {
                            Ok(Some(line)) => match chunk.after(&line) {
                                Some(next) => next,
                                None if *chunk == Chunk::Trailer && line.is_empty() => return Step::End,
                                None => return Step::Broken,
                            },
                            Ok(None) => return Step::More,
                            Err(TooLong) => return Step::Broken,
                        },
                    };
                    *chunk = next;
                }
            }
        }
    }
}

impl Chunk {
    /// What follows this line. `None`: nothing does.
    fn after(&self, line: &[u8]) -> Option<Chunk> {
        match self {
            Chunk::Size => {
                let size = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
                digits(size, 16).map(|size| if size == 0 { Chunk::Trailer } else { Chunk::Data(size) })
            }
            Chunk::DataEnd => line.is_empty().then_some(Chunk::Size),
            Chunk::Trailer => (!line.is_empty()).then_some(Chunk::Trailer),
            Chunk::Data(_) => None,
        }
    }
}

/// May the connection serve another exchange, if this answer is read to its end?
pub(super) fn stays_open(is_http10: bool, headers: &HeaderMap) -> bool {
    let has = |name: HeaderName, word: &'static [u8]| {
        let mut words = headers.get_all(name).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        words.any(is_word(word))
    };
    // With both, who stands between may have seen another end.
    let is_clear = !(headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH));
    is_clear && if is_http10 { has(CONNECTION, b"keep-alive") } else { !has(CONNECTION, b"close") }
}

struct TooLong;

/// The next line without its end, if it has come.
fn line(input: &mut BytesMut) -> Result<Option<BytesMut>, TooLong> {
    match memchr(b'\n', input) {
        Some(end) if end <= LONGEST_LINE && end > 0 && input[end - 1] == b'\r' => {
            let mut line = input.split_to(end + 1);
            line.truncate(end - 1);
            Ok(Some(line))
        }
        None if input.len() <= LONGEST_LINE => Ok(None),
        _ => Err(TooLong),
    }
}

/// Nothing but digits: no sign, no space.
fn digits(text: &[u8], radix: u32) -> Option<u64> {
    if text.first() == Some(&b'+') {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(text).ok()?, radix).ok()
}

fn is_word(word: &'static [u8]) -> impl Fn(&[u8]) -> bool {
    move |text| text.trim_ascii().eq_ignore_ascii_case(word)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn headers(all: &[(HeaderName, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in all {
            map.append(name, HeaderValue::from_static(value));
        }
        map
    }

    fn framing(all: &[(HeaderName, &'static str)]) -> Option<Framing> {
        Framing::of(StatusCode::OK, false, &headers(all))
    }

    #[test]
    fn a_head_says_where_its_body_ends_or_contradicts_itself() {
        let chunked = || Some(Framing::Chunked(Chunk::Size));
        assert_eq!(framing(&[]), Some(Framing::UntilClose));
        assert_eq!(framing(&[(CONTENT_LENGTH, "12")]), Some(Framing::Length(12)));
        assert_eq!(framing(&[(CONTENT_LENGTH, "12"), (CONTENT_LENGTH, "12")]), Some(Framing::Length(12)));
        assert_eq!(framing(&[(CONTENT_LENGTH, "12"), (CONTENT_LENGTH, "13")]), None);
        for length in ["+1", "-1", "1 ", "0x1", "1, 1", "", "99999999999999999999"] {
            assert_eq!(framing(&[(CONTENT_LENGTH, length)]), None, "{length:?}");
        }
        assert_eq!(framing(&[(TRANSFER_ENCODING, "gzip, Chunked")]), chunked());
        assert_eq!(framing(&[(TRANSFER_ENCODING, "chunked"), (CONTENT_LENGTH, "3")]), chunked());
        assert_eq!(framing(&[(TRANSFER_ENCODING, "chunked, gzip")]), Some(Framing::UntilClose));
        assert_eq!(Framing::of(StatusCode::OK, true, &headers(&[(TRANSFER_ENCODING, "chunked")])), None);
        let long = headers(&[(CONTENT_LENGTH, "12")]);
        assert_eq!(Framing::of(StatusCode::NO_CONTENT, false, &long), Some(Framing::Length(0)));
    }

    #[test]
    fn a_connection_stays_open_unless_the_answer_says_otherwise_or_has_two_ends() {
        assert!(stays_open(false, &headers(&[])));
        assert!(!stays_open(false, &headers(&[(CONNECTION, "keep-alive, Close")])));
        assert!(!stays_open(true, &headers(&[])));
        assert!(stays_open(true, &headers(&[(CONNECTION, "Keep-Alive")])));
        assert!(!stays_open(false, &headers(&[(TRANSFER_ENCODING, "chunked"), (CONTENT_LENGTH, "3")])));
    }

    /// All of it, given in pieces of so many bytes; what is left over tells where it ended.
    fn taken(mut framing: Framing, text: &[u8], piece: usize) -> (Step, Vec<u8>, usize) {
        let (mut input, mut body, mut step) = (BytesMut::new(), Vec::new(), Step::More);
        for piece in text.chunks(piece) {
            input.extend_from_slice(piece);
            if step == Step::More {
                step = framing.take(&mut input, |data| body.extend_from_slice(data));
            }
        }
        (step, body, input.len())
    }

    #[test]
    fn chunks_are_put_together_and_what_is_none_is_broken() {
        let chunked = |text: &str| taken(Framing::Chunked(Chunk::Size), text.as_bytes(), 1);
        assert_eq!(
            chunked("3\r\nabc\r\nA ;x=\"y\"\r\n0123456789\r\n0\r\nt: 1\r\n\r\nnext"),
            (Step::End, b"abc0123456789".to_vec(), 4)
        );
        for broken in ["\r\n", "x\r\n", "3\nabc\r\n", "-1\r\n", "3\r\nabcd\r\n", "11111111111111111\r\n", "3 3\r\n"] {
            assert_eq!(chunked(broken).0, Step::Broken, "{broken:?}");
        }
        assert_eq!(chunked(&"1".repeat(LONGEST_LINE + 2)).0, Step::Broken);
        assert_eq!(chunked("3\r\nab").0, Step::More);
    }

    proptest! {
        #[test]
        fn a_body_is_the_same_however_it_arrives(parts: Vec<Vec<u8>>, piece in 1..40_usize, rest: Vec<u8>) {
            let body = parts.concat();
            let mut text = Vec::new();
            for part in parts.iter().filter(|part| !part.is_empty()) {
                text.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
                text.extend_from_slice(part);
                text.extend_from_slice(b"\r\n");
            }
            text.extend_from_slice(b"0\r\n\r\n");
            text.extend_from_slice(&rest);
            prop_assert_eq!(taken(Framing::Chunked(Chunk::Size), &text, piece), (Step::End, body.clone(), rest.len()));
            let plain = [&body[..], &rest].concat();
            let expected = (Step::End, body.clone(), rest.len());
            if !plain.is_empty() {
                prop_assert_eq!(taken(Framing::Length(body.len() as u64), &plain, piece), expected);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(text: Vec<u8>, piece in 1..40_usize) {
            taken(Framing::Chunked(Chunk::Size), &text, piece);
        }
    }
}
