//! Every backend a contract case runs on, with a clock that the test moves.

use std::future::Future;
use std::time::Duration;

use gate::redis::{Config, Status};
use gate::{Backend, Clock, Key, fallback};

pub(crate) const START_US: u64 = 1_000_000_000_000_000;

/// Runs the case on memory, then on Redis.
pub(crate) async fn each_backend<F: Future<Output = ()>>(case: impl Fn(Backend, Clock) -> F) {
    let clock = Clock::manual(START_US);
    case(Backend::memory_with(clock.clone()), clock).await;
    let server = testkit::need!(testkit::redis());
    let clock = Clock::manual(START_US);
    let backend = connected(&server.url(), server.prefix(), clock.clone()).await;
    case(backend.clone(), clock).await;
    assert!(!backend.fallback().is_active(), "the case must have been decided by Redis");
    backend.shutdown().await;
}

/// A backend whose connection stands. Its deadline is long: a busy machine must not look like a lost Redis here.
pub(crate) async fn connected(url: &str, prefix: &str, clock: Clock) -> Backend {
    let config = Config { prefix: prefix.to_owned(), ..Config::new(url) };
    let patient = fallback::Config { deadline: Duration::from_secs(10), ..fallback::Config::default() };
    let backend = Backend::redis_with(config, patient, clock).expect("the URL is valid");
    until(Duration::from_secs(10), "a connection to Redis", async || backend.connection() == Some(Status::Connected))
        .await;
    backend
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(name).expect("a short name is a valid key")
}

/// Waits for a fact, and fails with its name when it does not come true in time.
pub(crate) async fn until(limit: Duration, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + limit;
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "waited {limit:?} in vain for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
