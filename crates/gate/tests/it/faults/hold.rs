//! Holds on a Redis that is far away.

use std::num::NonZeroU64;
use std::time::Duration;

use futures_util::future::join_all;
use gate::limiter::hold::Holds;
use gate::limiter::{Algorithm, Limiter, Policy};
use gate::redis::Config;
use gate::{Backend, Clock, fallback};
use testkit::eventually;
use testkit::proxy::{FaultProxy, Faults};
use testkit::redis::Server;

use crate::backends::{START_US, key};

const HELD: u64 = 1_200;

/// Ended holds were given back one after the other within a caller's deadline: with 1 ms to Redis it passed each time,
/// nothing was given back, and Redis lost its trust.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_holds_that_end_together_are_given_back_at_once_and_cost_redis_no_trust() {
    let server = testkit::need!(Server::start());
    let proxy = FaultProxy::start(("127.0.0.1", server.port()));
    let clock = Clock::manual(START_US);
    let patient = fallback::Config { deadline: Duration::from_secs(2), ..fallback::Config::default() };
    let url = format!("redis://{}", proxy.addr());
    let backend = Backend::redis_with(Config::new(url), patient, clock.clone()).expect("the URL is valid");
    let limiter = Limiter::new(&backend);
    let holds = Holds::new(&backend, &limiter);
    let policy =
        Policy::new(Algorithm::FixedWindow, 10_000, Duration::from_secs(3_600)).expect("a plain limit is valid");
    let (key, lasts) = (key("many"), Duration::from_secs(60));
    let held = join_all((0..HELD).map(|_| holds.hold("owner", &key, &policy, NonZeroU64::MIN, lasts))).await;
    assert!(held.into_iter().all(|held| held.is_ok_and(|(decision, token)| !decision.degraded && token.is_some())));
    proxy.set(Faults { latency: Duration::from_millis(5), ..Faults::default() });
    clock.advance(lasts);
    eventually(Duration::from_secs(3), "all of it to be given back", async || {
        limiter.peek(&key, &policy, NonZeroU64::MIN).await.remaining == 10_000
    })
    .await;
    assert!(!backend.fallback().is_active());
    backend.shutdown().await;
}
