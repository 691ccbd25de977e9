//! A permit: the right to be one of `n`, until it is given back or its lease is lost.

use std::fmt;
use std::sync::Arc;

use super::Semaphore;
use super::keeper::Held;
use crate::Holder;

/// Held until it is dropped. A background task renews its lease.
#[must_use = "a permit that is dropped is given back"]
pub struct Permit {
    semaphore: Semaphore,
    /// Taken when it is given back.
    pub(super) held: Option<Arc<Held>>,
    degraded: bool,
}

impl Permit {
    pub(super) fn new(semaphore: Semaphore, held: Arc<Held>, degraded: bool) -> Self {
        Permit { semaphore, held: Some(held), degraded }
    }

    /// The holder's id.
    #[must_use]
    pub fn id(&self) -> Holder {
        self.held().holder
    }

    /// Was it given without Redis?
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.degraded
    }

    /// Did the lease end before it was renewed? Then somebody else may hold the place.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.held().lost.is_cancelled()
    }

    /// Resolves when the lease is lost: stop the work, or at least do not trust that it is exclusive.
    pub async fn lost(&self) {
        self.held().lost.cancelled().await;
    }

    /// Renews the lease now. False: it is lost. The background task makes this unnecessary for most.
    pub async fn renew(&self) -> bool {
        self.semaphore.renew(self.held()).await
    }

    /// Gives the permit back and waits until that is known. False: the lease had ended before.
    pub async fn release(mut self) -> bool {
        let held = Arc::clone(self.held());
        let was_held = self.semaphore.give_back(&held).await;
        self.held = None;
        was_held
    }

    fn held(&self) -> &Arc<Held> {
        self.held.as_ref().expect("a permit holds until it is consumed")
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.semaphore.give_back_later(held);
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Permit").field("held", &self.held).finish_non_exhaustive()
    }
}
