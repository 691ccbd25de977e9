//! Commands as clients write them: arrays of bulk strings, or a line typed by hand. Pure: bytes in, slices out.
//!
//! Nothing is copied and nothing is believed: a length is checked before a byte of it is waited for.

/// Words of one command.
pub(super) const MOST_WORDS: usize = 128;
/// Bytes of one word.
pub(super) const LONGEST_WORD: usize = 16 * 1024;
/// Bytes of one command with everything around its words.
pub(super) const LONGEST_COMMAND: usize = 64 * 1024;
/// `*128\r\n`: a header line that is longer is none.
const LONGEST_HEADER: usize = 32;

/// What cannot be read; after it nobody knows where the next command begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("invalid multibulk length: a command has at most {MOST_WORDS} words")]
    WordCount,
    #[error("invalid bulk length: a word has at most {LONGEST_WORD} bytes")]
    WordLength,
    #[error("expected '$': a command is an array of bulk strings, without arrays inside")]
    NotABulkString,
    #[error("a bulk string must end with CR LF right after its announced length")]
    NoEnd,
    #[error("too big a command: it may have {LONGEST_COMMAND} bytes")]
    TooLong,
    #[error("unbalanced quotes in request: inside quotes write no quote and no backslash")]
    Quotes,
}

/// The words of one command, as places in the buffer they were read from. Kept between commands, so nothing is allocated.
#[derive(Debug, Default)]
pub(super) struct Words {
    places: Vec<(usize, usize)>,
}

impl Words {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// The word at this place; empty when there is none.
    #[inline]
    pub(super) fn get<'a>(&self, bytes: &'a [u8], index: usize) -> &'a [u8] {
        self.places.get(index).and_then(|&(start, end)| bytes.get(start..end)).unwrap_or_default()
    }
}

/// Reads one command from the front: how many bytes it took, or `None` if its end is not there yet. A command without
/// words is an empty line; it is passed over.
pub(super) fn read(bytes: &[u8], words: &mut Words) -> Result<Option<usize>, Malformed> {
    words.places.clear();
    let length = match bytes.first() {
        None => None,
        Some(b'*') => array(bytes, words)?,
        Some(_) => line(bytes, words)?,
    };
    if length.is_none() && bytes.len() >= LONGEST_COMMAND {
        return Err(Malformed::TooLong);
    }
    Ok(length)
}

fn array(bytes: &[u8], words: &mut Words) -> Result<Option<usize>, Malformed> {
    let Some((count, mut at)) = header(bytes, 0, Malformed::WordCount)? else { return Ok(None) };
    // Redis passes over `*0` and `*-1`.
    let Ok(count) = usize::try_from(count) else { return Ok(Some(at)) };
    if count > MOST_WORDS {
        return Err(Malformed::WordCount);
    }
    for _ in 0..count {
        match bytes.get(at) {
            None => return Ok(None),
            Some(b'$') => (),
            Some(_) => return Err(Malformed::NotABulkString),
        }
        let Some((length, start)) = header(bytes, at, Malformed::WordLength)? else { return Ok(None) };
        let length = usize::try_from(length).ok().filter(|length| *length <= LONGEST_WORD);
        let end = start + length.ok_or(Malformed::WordLength)?;
        match bytes.get(end..end + 2) {
            None => return Ok(None),
            Some(b"\r\n") => words.places.push((start, end)),
            Some(_) => return Err(Malformed::NoEnd),
        }
        at = end + 2;
    }
    Ok(Some(at))
}

/// The number after the type byte at `at`, and where the next line begins.
#[inline]
fn header(bytes: &[u8], at: usize, wrong: Malformed) -> Result<Option<(i64, usize)>, Malformed> {
    let digits = at + 1;
    let mut place = digits;
    let is_negative = bytes.get(place) == Some(&b'-');
    place += usize::from(is_negative);
    let mut number: i64 = 0;
    loop {
        match bytes.get(place) {
            None if place - digits > LONGEST_HEADER => return Err(wrong),
            None => return Ok(None),
            Some(digit @ b'0'..=b'9') if place - digits < 11 => number = number * 10 + i64::from(digit - b'0'),
            Some(b'\r') if place > digits + usize::from(is_negative) => break,
            Some(_) => return Err(wrong),
        }
        place += 1;
    }
    match bytes.get(place + 1) {
        None => Ok(None),
        Some(b'\n') => Ok(Some((if is_negative { -number } else { number }, place + 2))),
        Some(_) => Err(wrong),
    }
}

/// A line as people type it: words between spaces, or in quotes.
fn line(bytes: &[u8], words: &mut Words) -> Result<Option<usize>, Malformed> {
    let Some(end) = position(bytes, b'\n') else { return Ok(None) };
    let mut place = 0;
    while place < end {
        let (start, stop, next) = match bytes[place] {
            byte if byte.is_ascii_whitespace() => {
                place += 1;
                continue;
            }
            quote @ (b'"' | b'\'') => {
                let length = position(&bytes[place + 1..end], quote).ok_or(Malformed::Quotes)?;
                let stop = place + 1 + length;
                let is_closed = bytes.get(stop + 1).is_none_or(u8::is_ascii_whitespace);
                if !is_closed || bytes[place + 1..stop].contains(&b'\\') {
                    return Err(Malformed::Quotes);
                }
                (place + 1, stop, stop + 1)
            }
            _ => {
                let word = &bytes[place..end];
                let length = word.iter().position(u8::is_ascii_whitespace).unwrap_or(word.len());
                (place, place + length, place + length)
            }
        };
        if words.len() == MOST_WORDS {
            return Err(Malformed::WordCount);
        }
        words.places.push((start, stop));
        place = next;
    }
    Ok(Some(end + 1))
}

fn position(bytes: &[u8], wanted: u8) -> Option<usize> {
    bytes.iter().position(|byte| *byte == wanted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(bytes: &[u8]) -> Result<Option<(usize, Vec<String>)>, Malformed> {
        let mut words = Words::default();
        let length = read(bytes, &mut words)?;
        let text = |index| String::from_utf8_lossy(words.get(bytes, index)).into_owned();
        Ok(length.map(|length| (length, (0..words.len()).map(text).collect())))
    }

    #[test]
    fn an_array_and_a_line_say_the_same() {
        let array = b"*3\r\n$4\r\nECHO\r\n$0\r\n\r\n$3\r\na b\r\n+next";
        assert_eq!(words(array).unwrap(), Some((29, vec!["ECHO".into(), String::new(), "a b".into()])));
        let line = b"  ECHO '' \"a b\"\r\n+next";
        assert_eq!(words(line).unwrap(), Some((17, vec!["ECHO".into(), String::new(), "a b".into()])));
        assert_eq!(words(b"PING\n").unwrap(), Some((5, vec!["PING".into()])));
        assert_eq!(words(b"\r\n").unwrap(), Some((2, vec![])));
        assert_eq!(words(b"*0\r\n").unwrap(), Some((4, vec![])));
        assert_eq!(words(b"*-1\r\n").unwrap(), Some((5, vec![])));
    }

    #[test]
    fn every_half_command_is_waited_for() {
        for whole in [&b"*2\r\n$4\r\nECHO\r\n$3\r\nabc\r\n"[..], b"ECHO 'a b' c\r\n"] {
            for cut in 0..whole.len() {
                assert_eq!(words(&whole[..cut]).unwrap(), None, "{cut}");
            }
            assert_eq!(words(whole).unwrap().unwrap().0, whole.len());
        }
    }

    #[test]
    fn what_cannot_be_a_command_is_refused_before_it_is_waited_for() {
        for (bytes, wrong) in [
            (&b"*129\r\n"[..], Malformed::WordCount),
            (b"*99999999999999\r\n", Malformed::WordCount),
            (b"*x\r\n", Malformed::WordCount),
            (b"*\r\n", Malformed::WordCount),
            (b"*-\r\n", Malformed::WordCount),
            (b"*1\n$4\r\n", Malformed::WordCount),
            (b"*1\r\n$16385\r\n", Malformed::WordLength),
            (b"*1\r\n$-1\r\n", Malformed::WordLength),
            (b"*1\r\n$9223372036854775807\r\n", Malformed::WordLength),
            (b"*1\r\n*1\r\n*1\r\n", Malformed::NotABulkString),
            (b"*1\r\n:5\r\n", Malformed::NotABulkString),
            (b"*1\r\n$4\r\nPINGPONG\r\n", Malformed::NoEnd),
            (b"ECHO 'abc\r\n", Malformed::Quotes),
            (b"ECHO 'a'b\r\n", Malformed::Quotes),
            (b"ECHO \"a\\n\"\r\n", Malformed::Quotes),
        ] {
            assert_eq!(words(bytes).unwrap_err(), wrong, "{}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(words(&[b'x'; LONGEST_COMMAND]).unwrap_err(), Malformed::TooLong);
        assert_eq!(words(&b"a ".repeat(200)).unwrap(), None);
        assert_eq!(words(&[b"a ".repeat(200).as_slice(), b"\n"].concat()).unwrap_err(), Malformed::WordCount);
    }

    proptest! {
        /// Whatever arrives, nothing panics, and words lie inside what was taken.
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(prop::sample::select(&b"*$-0159\r\n\"' aPING\xff"[..]), 0..80)) {
            let mut words = Words::default();
            if let Ok(Some(length)) = read(&bytes, &mut words) {
                prop_assert!(length <= bytes.len());
                prop_assert!(words.places.iter().all(|(start, end)| start <= end && *end <= length));
            }
        }
    }
}
