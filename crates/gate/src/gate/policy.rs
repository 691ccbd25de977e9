//! How a target is protected: any of a rate limit, a circuit breaker and a concurrency limit.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::micros;
use crate::{breaker, limiter, semaphore};

/// Cheap to clone. `Policy::default()` protects nothing.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    pub(super) rate: Option<limiter::Policy>,
    pub(super) ahead_us: u64,
    pub(super) circuit: Option<Arc<breaker::Policy>>,
    pub(super) concurrency: Option<semaphore::Policy>,
}

impl Policy {
    /// At most so many calls per time.
    #[must_use]
    pub fn rate(self, rate: limiter::Policy) -> Policy {
        Policy { rate: Some(rate), ..self }
    }

    /// A slot of the rate that is at most this near is taken at once; the call waits for it, see
    /// [`Pass::delay`](super::Pass::delay). Whoever asks only when a slot is there is always a little late, and the slot is
    /// used that much later ever after.
    #[must_use]
    pub fn ahead(self, ahead: Duration) -> Policy {
        Policy { ahead_us: micros(ahead), ..self }
    }

    /// No calls while the target fails.
    #[must_use]
    pub fn circuit(self, circuit: breaker::Policy) -> Policy {
        Policy { circuit: Some(Arc::new(circuit)), ..self }
    }

    /// At most so many calls at a time.
    #[must_use]
    pub fn concurrency(self, concurrency: semaphore::Policy) -> Policy {
        Policy { concurrency: Some(concurrency), ..self }
    }
}
