//! A circuit breaker around a service.

use std::future::Future;

use tower::Layer;

use super::Refused;
use super::classify::{By, Classify, ErrIsFailure};
use super::guarded::{Guard, Guarded};
use crate::Key;
use crate::breaker::{Admission, Breaker, Outcome, Pass};

/// Stops calling a target that fails. By default an `Err` is a failure and an `Ok` a success.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use gate::breaker::{Breaker, Policy};
/// use gate::layer::{BreakerLayer, Error};
/// use gate::{Backend, Key};
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
///
/// let breaker = Breaker::new(&Backend::memory(), Policy::default());
/// let target = Key::new("api.example.com")?;
/// let mut client = ServiceBuilder::new()
///     .layer(BreakerLayer::new(breaker, move |_: &&str| Some(target.clone())))
///     .service(service_fn(async |_request: &str| Err::<(), _>(std::io::Error::other("refused"))));
///
/// for _ in 0..5 {
///     assert!(matches!(client.ready().await?.call("hello").await, Err(Error::Inner(_))));
/// }
/// assert!(matches!(client.ready().await?.call("hello").await, Err(Error::Refused(_))), "the circuit is open now");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct BreakerLayer<K, C = ErrIsFailure> {
    breaker: Breaker,
    key: K,
    classify: C,
}

impl<K> BreakerLayer<K> {
    /// `key` names the target of a request; `None` lets it pass unguarded.
    pub fn new(breaker: Breaker, key: K) -> Self {
        BreakerLayer { breaker, key, classify: ErrIsFailure }
    }

    /// Judges results by a closure, e.g. so that a status of 500 is a failure and one of 404 is not.
    ///
    /// ```
    /// # use gate::{Backend, Key, breaker::{Breaker, Outcome, Policy}, layer::BreakerLayer};
    /// # let breaker = Breaker::new(&Backend::memory(), Policy::default());
    /// let layer = BreakerLayer::new(breaker, |url: &String| Key::new(url).ok())
    ///     .classify(|result: &Result<u16, std::io::Error>| match result {
    ///         Ok(500..) | Err(_) => Outcome::Failure,
    ///         Ok(400..) => Outcome::Ignored,
    ///         Ok(_) => Outcome::Success,
    ///     });
    /// ```
    pub fn classify<Response, Failure, C>(self, classify: C) -> BreakerLayer<K, By<C, Response, Failure>>
    where
        C: Fn(&Result<Response, Failure>) -> Outcome,
    {
        BreakerLayer { breaker: self.breaker, key: self.key, classify: By::new(classify) }
    }
}

impl<S, K: Clone, C: Clone> Layer<S> for BreakerLayer<K, C> {
    type Service = Guarded<S, BreakerLayer<K, C>>;

    fn layer(&self, inner: S) -> Self::Service {
        Guarded::new(inner, self.clone())
    }
}

impl<Request, Response, Failure, K, C> Guard<Request, Response, Failure> for BreakerLayer<K, C>
where
    K: Fn(&Request) -> Option<Key> + Clone + Send + Sync + 'static,
    C: Classify<Response, Failure>,
{
    type Held = Pass;

    fn key(&self, request: &Request) -> Option<Key> {
        (self.key)(request)
    }

    async fn enter(&self, key: Key) -> Result<Pass, Refused> {
        match self.breaker.admit(&key).await {
            Admission::Pass(pass) => Ok(pass),
            Admission::Reject { retry_after, degraded, .. } => Err(Refused::Circuit { retry_after, degraded }),
        }
    }

    fn leave(
        &self,
        held: Pass,
        result: &Result<Response, Failure>,
    ) -> impl Future<Output = ()> + Send + use<Request, Response, Failure, K, C> {
        held.record(self.classify.outcome(result))
    }
}
