//! The primitives as tower layers, for any Rust service, with or without Tidegate's server.
//!
//! A layer takes a closure that names the key of a request; `None` lets the request pass unguarded. A refusal is
//! [`Error::Refused`] and says by what and when to come back; an error of the inner service is [`Error::Inner`].
//! Readiness is the inner service's own: the guard asks only in `call`, with the clone that is ready, and a refused call
//! drops that clone, which gives its readiness back. Dropping a response future releases what it held, and counts as
//! ignored for the breaker. What is held is held until the response's head is there, not until its body has ended.

mod breaker;
mod classify;
mod concurrency;
mod gate;
mod guarded;
mod rate;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use self::breaker::BreakerLayer;
pub use self::classify::{By, Classify, ErrIsFailure};
pub use self::concurrency::ConcurrencyLayer;
pub use self::gate::GateLayer;
pub use self::guarded::{Guard, Guarded};
pub use self::rate::RateLimitLayer;

/// Why a call was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The rate limit is used up. Without `retry_after` the cost can never pass.
    #[error("the rate limit is used up")]
    Rate { retry_after: Option<Duration>, degraded: bool },
    /// The target is known to fail.
    #[error("the circuit is open")]
    Circuit { retry_after: Duration, degraded: bool },
    /// Too many calls are under way.
    #[error("too many calls are under way")]
    Concurrency { retry_after: Duration, degraded: bool },
}

impl Refused {
    /// When asking again makes sense; `None` if never.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match *self {
            Refused::Rate { retry_after, .. } => retry_after,
            Refused::Circuit { retry_after, .. } | Refused::Concurrency { retry_after, .. } => Some(retry_after),
        }
    }

    /// Was it decided without Redis?
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        match *self {
            Refused::Rate { degraded, .. }
            | Refused::Circuit { degraded, .. }
            | Refused::Concurrency { degraded, .. } => degraded,
        }
    }
}

/// What a guarded service may answer instead of a response.
#[derive(Debug, thiserror::Error)]
pub enum Error<E> {
    /// The call was not made.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The call was made and failed.
    #[error("the guarded service failed")]
    Inner(#[source] E),
}
