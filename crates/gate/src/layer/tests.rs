//! The layers around services that count, fail and hang.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore as Slots;
use tower::{Layer, Service, ServiceExt, service_fn};

use super::{BreakerLayer, ConcurrencyLayer, Error, GateLayer, RateLimitLayer, Refused};
use crate::breaker::{Breaker, Force, Outcome, Policy, State};
use crate::gate::{self, Gate};
use crate::limiter::{self, Algorithm, Limiter};
use crate::semaphore::{self, Semaphore};
use crate::{Backend, Key};

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn breaker() -> Breaker {
    Breaker::new(&Backend::memory(), Policy::default())
}

#[tokio::test]
async fn an_open_circuit_refuses_without_calling_and_says_when_to_come_back() {
    let (breaker, calls) = (breaker(), Arc::new(AtomicU32::new(0)));
    breaker.force(&key("t"), Force::Open, Duration::from_hours(1)).await.unwrap();
    let counted = Arc::clone(&calls);
    let service = BreakerLayer::new(breaker, |_: &()| Some(key("t"))).layer(service_fn(move |()| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Ok::<(), ()>(()) }
    }));
    let Err(Error::Refused(refused)) = service.oneshot(()).await else { panic!("the circuit is open") };
    assert!(refused.retry_after().unwrap() > Duration::from_mins(59) && !refused.is_degraded());
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn results_are_judged_by_the_closure() {
    let breaker = breaker();
    let layer =
        BreakerLayer::new(breaker.clone(), |_: &u16| Some(key("t"))).classify(
            |result: &Result<u16, ()>| match result {
                Ok(500..) | Err(()) => Outcome::Failure,
                Ok(400..) => Outcome::Ignored,
                Ok(_) => Outcome::Success,
            },
        );
    let mut service = layer.layer(service_fn(async |status: u16| Ok::<u16, ()>(status)));
    for status in [200, 503, 404, 503, 503, 503] {
        service.ready().await.unwrap().call(status).await.unwrap();
    }
    let view = breaker.view(&key("t")).await;
    assert_eq!((view.failures, view.counts.calls, view.state), (4, 5, State::Closed));
    service.ready().await.unwrap().call(500).await.unwrap();
    assert!(matches!(service.ready().await.unwrap().call(200).await, Err(Error::Refused(Refused::Circuit { .. }))));
}

#[tokio::test]
async fn a_request_without_a_key_passes_unguarded() {
    let breaker = breaker();
    breaker.force(&key("t"), Force::Open, Duration::from_hours(1)).await.unwrap();
    let layer = BreakerLayer::new(breaker, |name: &&str| (!name.is_empty()).then(|| key(name)));
    let service = layer.layer(service_fn(async |_: &str| Ok::<(), ()>(())));
    assert!(service.clone().oneshot("").await.is_ok());
    assert!(service.oneshot("t").await.is_err());
}

#[tokio::test]
async fn dropping_a_call_under_way_gives_its_permit_back() {
    let backend = Backend::memory();
    let semaphore = Semaphore::new(&backend, semaphore::Policy::new(1, Duration::from_secs(30)).unwrap());
    let layer = ConcurrencyLayer::new(semaphore.clone(), |_: &()| Some(key("t")));
    let service = layer.layer(service_fn(|()| std::future::pending::<Result<(), ()>>()));
    let mut hanging = Box::pin(service.clone().oneshot(()));
    assert!(futures_util::poll!(&mut hanging).is_pending());
    assert_eq!(semaphore.held(&key("t")).await, 1);
    assert!(matches!(service.oneshot(()).await, Err(Error::Refused(Refused::Concurrency { .. }))));
    drop(hanging);
    backend.shutdown().await;
    assert_eq!(semaphore.held(&key("t")).await, 0);
}

#[tokio::test]
async fn a_call_may_wait_for_its_turn() {
    let semaphore = Semaphore::new(&Backend::memory(), semaphore::Policy::new(1, Duration::from_secs(30)).unwrap());
    let layer = ConcurrencyLayer::new(semaphore, |_: &()| Some(key("t"))).wait(Duration::from_secs(10));
    let service = layer.layer(service_fn(async |()| {
        tokio::task::yield_now().await;
        Ok::<(), ()>(())
    }));
    let calls = (0..5).map(|_| service.clone().oneshot(()));
    for result in futures_util::future::join_all(calls).await {
        result.unwrap();
    }
}

#[tokio::test]
async fn a_used_up_limit_refuses_with_the_time_to_wait() {
    let policy = limiter::Policy::new(Algorithm::Gcra, 1, Duration::from_hours(1)).unwrap();
    let layer = RateLimitLayer::new(Limiter::new(&Backend::memory()), policy, |name: &&str| Some(key(name)));
    let service = layer.layer(service_fn(async |_: &str| Ok::<(), ()>(())));
    service.clone().oneshot("a").await.unwrap();
    service.clone().oneshot("b").await.unwrap();
    let Err(Error::Refused(refused)) = service.oneshot("a").await else { panic!("one an hour is allowed") };
    assert!(matches!(refused, Refused::Rate { retry_after: Some(_), degraded: false }), "{refused:?}");
}

#[tokio::test]
async fn the_gate_guards_by_all_three_and_says_which_refused() {
    let gate = Gate::new(&Backend::memory());
    let policy = gate::Policy::default()
        .rate(limiter::Policy::new(Algorithm::Gcra, 7, Duration::from_hours(1)).unwrap())
        .circuit(Policy::default())
        .concurrency(semaphore::Policy::new(1, Duration::from_secs(30)).unwrap());
    let layer =
        GateLayer::new(gate.clone(), policy, |_: &Option<u16>| Some(key("t"))).classify(|result: &Result<u16, ()>| {
            if matches!(result, Ok(200)) { Outcome::Success } else { Outcome::Failure }
        });
    let mut service = layer.layer(service_fn(async |status: Option<u16>| match status {
        Some(status) => Ok::<u16, ()>(status),
        None => std::future::pending().await,
    }));
    let mut hanging = Box::pin(service.clone().oneshot(None));
    assert!(futures_util::poll!(&mut hanging).is_pending());
    let refused = service.ready().await.unwrap().call(Some(200)).await;
    assert!(matches!(refused, Err(Error::Refused(Refused::Concurrency { .. }))), "{refused:?}");
    drop(hanging);
    while gate.semaphore().held(&key("t")).await > 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..5 {
        service.ready().await.unwrap().call(Some(500)).await.unwrap();
    }
    let refused = service.ready().await.unwrap().call(Some(200)).await;
    assert!(matches!(refused, Err(Error::Refused(Refused::Circuit { .. }))), "{refused:?}");
    gate.breaker().automatic(&key("t")).await.unwrap();
    service.ready().await.unwrap().call(Some(200)).await.unwrap();
    let refused = service.ready().await.unwrap().call(Some(200)).await;
    assert!(matches!(refused, Err(Error::Refused(Refused::Rate { .. }))), "seven calls were counted: {refused:?}");
}

/// A service with one slot, which `poll_ready` reserves, as tower's own concurrency limit does.
#[derive(Debug)]
struct OneSlot {
    slots: tokio_util::sync::PollSemaphore,
    slot: Option<tokio::sync::OwnedSemaphorePermit>,
}

impl OneSlot {
    fn new(slots: &Arc<Slots>) -> Self {
        OneSlot { slots: tokio_util::sync::PollSemaphore::new(Arc::clone(slots)), slot: None }
    }
}

impl Clone for OneSlot {
    fn clone(&self) -> Self {
        OneSlot { slots: self.slots.clone(), slot: None }
    }
}

impl Service<()> for OneSlot {
    type Response = ();
    type Error = ();
    type Future = std::future::Ready<Result<(), ()>>;

    fn poll_ready(&mut self, context: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), ()>> {
        if self.slot.is_none() {
            self.slot = std::task::ready!(self.slots.poll_acquire(context));
        }
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        drop(self.slot.take().expect("poll_ready must come before call"));
        std::future::ready(Ok(()))
    }
}

#[tokio::test]
async fn the_ready_clone_makes_the_call_and_a_refusal_gives_readiness_back() {
    let (breaker, slots) = (breaker(), Arc::new(Slots::new(1)));
    let mut service = BreakerLayer::new(breaker.clone(), |_: &()| Some(key("t"))).layer(OneSlot::new(&slots));
    service.ready().await.unwrap().call(()).await.unwrap();
    assert_eq!(slots.available_permits(), 1);
    breaker.force(&key("t"), Force::Open, Duration::from_hours(1)).await.unwrap();
    for _ in 0..3 {
        // Would hang on the second round if a refused call kept the slot.
        let ready = tokio::time::timeout(Duration::from_secs(10), service.ready()).await.expect("the slot is free");
        assert!(matches!(ready.unwrap().call(()).await, Err(Error::Refused(_))));
    }
    assert_eq!(slots.available_permits(), 1);
}
