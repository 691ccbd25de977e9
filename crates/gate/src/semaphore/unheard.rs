//! Permits that Redis may count and nobody holds: they are taken back, also from a Redis that is not trusted.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::Semaphore;
use crate::metrics::PERMITS_LEFT;
use crate::{Error, Holder, Key};

/// Permits that wait to be taken back; beyond, their leases end by themselves.
pub(super) const MOST_OWED: usize = 10_000;

/// A question to Redis for a permit. If it is dropped between the question and the answer, the permit is taken back.
pub(crate) struct Unheard<'a> {
    semaphore: &'a Semaphore,
    key: &'a Key,
    holder: Holder,
    is_owed: bool,
}

impl<'a> Unheard<'a> {
    pub(crate) fn new(semaphore: &'a Semaphore, key: &'a Key, holder: Holder) -> Self {
        Unheard { semaphore, key, holder, is_owed: false }
    }

    pub(crate) async fn until_heard<T>(
        &mut self,
        question: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.is_owed = true;
        let answer = question.await;
        self.is_owed = answer.is_err();
        answer
    }
}

impl Drop for Unheard<'_> {
    fn drop(&mut self) {
        if self.is_owed {
            self.semaphore.release_here(self.key, self.holder);
            self.semaphore.wake(self.key);
            self.semaphore.take_back(self.key, self.holder);
        }
    }
}

impl Semaphore {
    /// Frees in Redis what no answer said to be free, by a task; outside a runtime, when the lease ends.
    pub(crate) fn take_back(&self, key: &Key, holder: Holder) {
        let Some(shared) = self.inner.shared.clone() else { return };
        if Handle::try_current().is_err() {
            return;
        }
        let Ok(place) = Arc::clone(&self.inner.owed).try_acquire_owned() else {
            metrics::counter!(PERMITS_LEFT).increment(1);
            return;
        };
        let (fallback, key, lease) = (self.inner.fallback.clone(), key.clone(), self.policy.lease_us);
        self.inner.tasks.spawn_lingering(fallback.deadline(), async move {
            let _place = place;
            fallback.insist(Duration::from_micros(lease), || shared.release(&key, holder)).await;
        });
    }
}
