//! Replies, in RESP2 and RESP3. Pure: they are appended to a buffer that is sent in one write.

/// The version a client asked for with `HELLO`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

impl Protocol {
    pub(super) fn number(self) -> u64 {
        match self {
            Protocol::Resp2 => 2,
            Protocol::Resp3 => 3,
        }
    }
}

/// What goes out.
#[derive(Debug, Default)]
pub(super) struct Replies {
    bytes: Vec<u8>,
}

impl Replies {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    pub(super) fn simple(&mut self, text: &str) {
        self.line(b'+', text);
    }

    /// `text` begins with its kind (`ERR`, `NOAUTH`, …). A line break in it would begin another reply.
    pub(super) fn error(&mut self, text: &str) {
        self.line(b'-', &text.replace(['\r', '\n'], " "));
    }

    #[inline]
    pub(super) fn integer(&mut self, number: i64) {
        self.bytes.push(b':');
        if number < 0 {
            self.bytes.push(b'-');
        }
        self.digits(number.unsigned_abs());
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.header(b'$', bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(super) fn null(&mut self, protocol: Protocol) {
        self.bytes.extend_from_slice(match protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    #[inline]
    pub(super) fn array(&mut self, length: usize) {
        self.header(b'*', length);
    }

    /// A map of so many pairs: a flat array before RESP3.
    pub(super) fn map(&mut self, protocol: Protocol, pairs: usize) {
        match protocol {
            Protocol::Resp2 => self.header(b'*', pairs * 2),
            Protocol::Resp3 => self.header(b'%', pairs),
        }
    }

    fn line(&mut self, kind: u8, text: &str) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn header(&mut self, kind: u8, length: usize) {
        self.bytes.push(kind);
        self.digits(length as u64);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Without `format!`, which takes longer than the decision that is written.
    #[inline]
    fn digits(&mut self, mut number: u64) {
        let mut text = [0_u8; 20];
        let mut place = text.len();
        loop {
            place -= 1;
            text[place] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.bytes.extend_from_slice(&text[place..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_reads_as_the_protocol_says() {
        let mut replies = Replies::default();
        replies.simple("OK");
        replies.error("ERR two\r\nlines");
        for number in [0, 7, -1, 10, 1_000_000, i64::MAX, i64::MIN] {
            replies.integer(number);
        }
        replies.bulk(b"a\r\nb");
        replies.array(2);
        let text = "+OK\r\n-ERR two  lines\r\n:0\r\n:7\r\n:-1\r\n:10\r\n:1000000\r\n:9223372036854775807\r\n:-9223372036854775808\r\n$4\r\na\r\nb\r\n*2\r\n";
        assert_eq!(String::from_utf8_lossy(replies.bytes()), text);
    }

    #[test]
    fn maps_and_nothing_differ_between_the_versions() {
        for (protocol, text) in [(Protocol::Resp2, "*4\r\n$-1\r\n"), (Protocol::Resp3, "%2\r\n_\r\n")] {
            let mut replies = Replies::default();
            replies.map(protocol, 2);
            replies.null(protocol);
            assert_eq!(String::from_utf8_lossy(replies.bytes()), text);
        }
    }
}
