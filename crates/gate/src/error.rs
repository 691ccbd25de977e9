//! What can go wrong. A refusal is an answer, not an error: errors are for what should have worked.

use std::time::Duration;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("a key may not be empty")]
    KeyEmpty,
    #[error("a key may have at most 512 bytes, this one has {bytes}")]
    KeyTooLong { bytes: usize },
    #[error("{field} must be at least {least}")]
    TooSmall { field: &'static str, least: u64 },
    #[error("{field} may be at most {most}")]
    TooLarge { field: &'static str, most: u64 },
    #[error("{field} {problem}")]
    Policy { field: &'static str, problem: &'static str },
    #[error("a limit of {limit} in {window:?} cannot be counted exactly; use a rounder limit or a shorter window")]
    NotCountable { limit: u64, window: Duration },
    #[error("a window counts its limit and has no burst; use a token bucket, gcra or leaky bucket")]
    BurstOfWindow,
    #[error("limits decided together need different keys; scope them")]
    SameKeyTwice,
    #[error("a decision needs at least one limit and at most {most}")]
    LimitCount { most: usize },
    #[error("limits decided together need keys with one tag on a cluster")]
    DifferentSlots,
    #[error("the Redis URL is not understood: {reason}")]
    Url { reason: &'static str },
    #[error("redis did not answer within {0:?}")]
    Deadline(Duration),
    #[error("redis is not connected")]
    NotConnected,
    #[error("too many operations wait for redis")]
    Overloaded,
    #[error("redis answered in a shape this version does not know")]
    UnexpectedReply,
    #[error("redis refused the operation")]
    Redis(#[from] redis::RedisError),
}

impl Error {
    /// Could the same call succeed later, unchanged? True for trouble with Redis, false for a bad argument.
    pub fn is_transient(&self) -> bool {
        matches!(self, Error::Deadline(_) | Error::NotConnected | Error::Overloaded | Error::Redis(_))
    }

    /// Did Redis answer, though not with what was asked for? Then it is there, and a script or a key of ours is at
    /// fault.
    pub(crate) fn is_an_answer(&self) -> bool {
        match self {
            Error::UnexpectedReply => true,
            // What went wrong inside a script says so; a plain `ERR` is a server that does not take our commands.
            Error::Redis(error) => match error.code() {
                Some("WRONGTYPE") => true,
                Some("ERR") => error.detail().is_some_and(|detail| detail.contains("user_script")),
                _ => false,
            },
            _ => false,
        }
    }
}
