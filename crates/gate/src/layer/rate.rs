//! At most so many calls per time, in the whole fleet.

use std::future::{Future, ready};
use std::num::NonZeroU64;

use tower::Layer;

use super::Refused;
use super::guarded::{Guard, Guarded};
use crate::Key;
use crate::limiter::{Limiter, Policy};

/// Refuses a call when its key's limit is used up.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// use gate::layer::{Error, RateLimitLayer};
/// use gate::limiter::{Algorithm, Limiter, Policy};
/// use gate::{Backend, Key};
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
///
/// let policy = Policy::new(Algorithm::Gcra, 2, Duration::from_mins(1))?;
/// let layer = RateLimitLayer::new(Limiter::new(&Backend::memory()), policy, |user: &&str| Key::new(user).ok());
/// let mut greet = ServiceBuilder::new()
///     .layer(layer)
///     .service(service_fn(async |user: &str| Ok::<_, std::io::Error>(format!("hello {user}"))));
///
/// assert_eq!(greet.ready().await?.call("ada").await?, "hello ada");
/// assert_eq!(greet.ready().await?.call("ada").await?, "hello ada");
/// let Err(Error::Refused(refused)) = greet.ready().await?.call("ada").await else { panic!("two a minute are allowed") };
/// assert!(refused.retry_after().is_some_and(|wait| wait <= Duration::from_secs(30)));
/// assert_eq!(greet.ready().await?.call("grace").await?, "hello grace");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RateLimitLayer<K> {
    limiter: Limiter,
    policy: Policy,
    key: K,
}

impl<K> RateLimitLayer<K> {
    /// `key` names who or what a request counts for; `None` lets it pass unguarded. Each call costs one.
    pub fn new(limiter: Limiter, policy: Policy, key: K) -> Self {
        RateLimitLayer { limiter, policy, key }
    }
}

impl<S, K: Clone> Layer<S> for RateLimitLayer<K> {
    type Service = Guarded<S, RateLimitLayer<K>>;

    fn layer(&self, inner: S) -> Self::Service {
        Guarded::new(inner, self.clone())
    }
}

impl<Request, Response, Failure, K> Guard<Request, Response, Failure> for RateLimitLayer<K>
where
    K: Fn(&Request) -> Option<Key> + Clone + Send + Sync + 'static,
{
    /// What was counted stays counted.
    type Held = ();

    fn key(&self, request: &Request) -> Option<Key> {
        (self.key)(request)
    }

    async fn enter(&self, key: Key) -> Result<(), Refused> {
        let decision = self.limiter.check(&key, &self.policy, NonZeroU64::MIN).await;
        if decision.is_allowed() {
            return Ok(());
        }
        Err(Refused::Rate { retry_after: decision.retry_after(), degraded: decision.degraded })
    }

    fn leave(
        &self,
        (): (),
        _: &Result<Response, Failure>,
    ) -> impl Future<Output = ()> + Send + use<Request, Response, Failure, K> {
        ready(())
    }
}
