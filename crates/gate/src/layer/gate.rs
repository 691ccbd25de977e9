//! Rate, circuit and concurrency around a service, decided together.

use std::future::Future;
use std::num::NonZeroU64;

use tower::Layer;

use super::Refused;
use super::classify::{By, Classify, ErrIsFailure};
use super::guarded::{Guard, Guarded};
use crate::Key;
use crate::breaker::Outcome;
use crate::gate::{self, Entry, Gate, Pass, Policy};

/// Makes a call only if rate, circuit and concurrency agree, and charges nothing otherwise. By default an `Err` is a
/// failure and an `Ok` a success.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// use gate::gate::{Gate, Policy};
/// use gate::layer::{Error, GateLayer, Refused};
/// use gate::{Backend, Key, breaker, limiter, semaphore};
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
///
/// let policy = Policy::default()
///     .rate(limiter::Policy::new(limiter::Algorithm::SlidingLog, 100, Duration::from_secs(1))?)
///     .circuit(breaker::Policy::default())
///     .concurrency(semaphore::Policy::new(10, Duration::from_secs(30))?);
/// let target = Key::new("api.example.com")?;
/// // `Backend::redis("redis://127.0.0.1/")?` shares all three with the fleet.
/// let mut client = ServiceBuilder::new()
///     .layer(GateLayer::new(Gate::new(&Backend::memory()), policy, move |_: &&str| Some(target.clone())))
///     .service(service_fn(async |_: &str| Err::<(), _>(std::io::Error::other("down"))));
///
/// for _ in 0..5 {
///     assert!(matches!(client.ready().await?.call("hello").await, Err(Error::Inner(_))));
/// }
/// let refused = client.ready().await?.call("hello").await;
/// assert!(matches!(refused, Err(Error::Refused(Refused::Circuit { .. }))));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct GateLayer<K, C = ErrIsFailure> {
    gate: Gate,
    policy: Policy,
    key: K,
    classify: C,
}

impl<K> GateLayer<K> {
    /// `key` names the target of a request; `None` lets it pass unguarded. Each call costs one.
    pub fn new(gate: Gate, policy: Policy, key: K) -> Self {
        GateLayer { gate, policy, key, classify: ErrIsFailure }
    }

    /// Judges results by a closure, as in [`BreakerLayer::classify`](super::BreakerLayer::classify).
    pub fn classify<Response, Failure, C>(self, classify: C) -> GateLayer<K, By<C, Response, Failure>>
    where
        C: Fn(&Result<Response, Failure>) -> Outcome,
    {
        let GateLayer { gate, policy, key, .. } = self;
        GateLayer { gate, policy, key, classify: By::new(classify) }
    }
}

impl<S, K: Clone, C: Clone> Layer<S> for GateLayer<K, C> {
    type Service = Guarded<S, GateLayer<K, C>>;

    fn layer(&self, inner: S) -> Self::Service {
        Guarded::new(inner, self.clone())
    }
}

impl<Request, Response, Failure, K, C> Guard<Request, Response, Failure> for GateLayer<K, C>
where
    K: Fn(&Request) -> Option<Key> + Clone + Send + Sync + 'static,
    C: Classify<Response, Failure>,
{
    type Held = Pass;

    fn key(&self, request: &Request) -> Option<Key> {
        (self.key)(request)
    }

    async fn enter(&self, key: Key) -> Result<Pass, Refused> {
        match self.gate.enter(&key, &self.policy, NonZeroU64::MIN).await {
            Entry::Pass(pass) => {
                if !pass.delay().is_zero() {
                    tokio::time::sleep(pass.delay()).await;
                }
                Ok(pass)
            }
            Entry::Refused(refused) => Err(refused.into()),
        }
    }

    fn leave(
        &self,
        held: Pass,
        result: &Result<Response, Failure>,
    ) -> impl Future<Output = ()> + Send + use<Request, Response, Failure, K, C> {
        held.exit(self.classify.outcome(result))
    }
}

impl From<gate::Refused> for Refused {
    fn from(refused: gate::Refused) -> Refused {
        let gate::Refused { by, retry_after, degraded } = refused;
        let soon = retry_after.unwrap_or_default();
        match by {
            gate::By::Rate => Refused::Rate { retry_after, degraded },
            gate::By::Circuit => Refused::Circuit { retry_after: soon, degraded },
            gate::By::Concurrency => Refused::Concurrency { retry_after: soon, degraded },
        }
    }
}
