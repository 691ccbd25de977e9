//! At most so many calls under way, in the whole fleet.

use std::future::{Future, ready};
use std::time::Duration;

use tower::Layer;

use super::Refused;
use super::guarded::{Guard, Guarded};
use crate::Key;
use crate::semaphore::{Acquired, Permit, Semaphore};

/// Refuses a call, or lets it wait for a while, when too many are under way.
///
/// ```
/// # use std::time::Duration;
/// # use gate::{Backend, Key, layer::ConcurrencyLayer, semaphore::{Policy, Semaphore}};
/// # fn main() -> Result<(), gate::Error> {
/// let semaphore = Semaphore::new(&Backend::memory(), Policy::new(100, Duration::from_secs(30))?);
/// let layer = ConcurrencyLayer::new(semaphore, |url: &String| Key::new(url).ok()).wait(Duration::from_secs(1));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ConcurrencyLayer<K> {
    semaphore: Semaphore,
    key: K,
    wait: Duration,
}

impl<K> ConcurrencyLayer<K> {
    /// `key` names what a request uses up; `None` lets it pass unguarded.
    pub fn new(semaphore: Semaphore, key: K) -> Self {
        ConcurrencyLayer { semaphore, key, wait: Duration::ZERO }
    }

    /// How long a call may wait for its turn before it is refused.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        ConcurrencyLayer { wait, ..self }
    }
}

impl<S, K: Clone> Layer<S> for ConcurrencyLayer<K> {
    type Service = Guarded<S, ConcurrencyLayer<K>>;

    fn layer(&self, inner: S) -> Self::Service {
        Guarded::new(inner, self.clone())
    }
}

impl<Request, Response, Failure, K> Guard<Request, Response, Failure> for ConcurrencyLayer<K>
where
    K: Fn(&Request) -> Option<Key> + Clone + Send + Sync + 'static,
{
    type Held = Permit;

    fn key(&self, request: &Request) -> Option<Key> {
        (self.key)(request)
    }

    async fn enter(&self, key: Key) -> Result<Permit, Refused> {
        let acquired = if self.wait.is_zero() {
            self.semaphore.try_acquire(&key).await
        } else {
            self.semaphore.acquire(&key, self.wait).await
        };
        match acquired {
            Acquired::Permit(permit) => Ok(permit),
            Acquired::Full { retry_after, degraded } => Err(Refused::Concurrency { retry_after, degraded }),
        }
    }

    /// The caller need not wait until the permit is back: its drop sends it.
    fn leave(
        &self,
        held: Permit,
        _: &Result<Response, Failure>,
    ) -> impl Future<Output = ()> + Send + use<Request, Response, Failure, K> {
        drop(held);
        ready(())
    }
}
