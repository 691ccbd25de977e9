//! How a receiver answers: well, late, badly, or with malice.

use std::time::Duration;

/// What happens to requests of one path.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// Before the answer, whatever it is.
    pub delay: Duration,
    pub answer: Answer,
    /// How many requests of this path get `failure` before `answer`.
    pub fail_first: u32,
    /// The same, counted for each `webhook-id` by itself.
    pub fail_first_of_each: u32,
    pub failure: Answer,
}

impl Default for Behaviour {
    fn default() -> Behaviour {
        Behaviour {
            delay: Duration::ZERO,
            answer: Answer::Status(200),
            fail_first: 0,
            fail_first_of_each: 0,
            failure: Answer::Status(500),
        }
    }
}

impl From<Answer> for Behaviour {
    fn from(answer: Answer) -> Behaviour {
        Behaviour { answer, ..Behaviour::default() }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// A status and a short body.
    Status(u16),
    /// A status, headers and a body of one's own.
    Full { status: u16, headers: Vec<(&'static str, String)>, body: Vec<u8> },
    /// A status with `Retry-After`: seconds or a date.
    RetryAfter { status: u16, value: String },
    /// The connection stays open and nothing is ever sent.
    Hang,
    /// The connection ends without a byte.
    Close,
    /// The connection is reset without a byte.
    Reset,
    /// A good answer whose head arrives one byte at a time.
    DripHead { every: Duration },
    /// A good head at once, and a body that arrives one byte at a time, endlessly.
    DripBody { every: Duration },
    /// A good head and half of the announced body, then nothing, and no end of the connection.
    HalfBody,
    /// A body of this many bytes.
    HugeBody { bytes: u64 },
    /// A gzip body without end, each byte of which unpacks to a thousand.
    GzipBomb,
    /// Headers without end.
    EndlessHeaders,
    /// `103 Early Hints` without end.
    InformationalFlood,
}
