//! Every backend a contract case runs on, with a clock that the test moves.

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;
use testkit::eventually;

use gate::redis::{Config, Status};
use gate::{Backend, Clock, Key, fallback};
use testkit::Unavailable;
use testkit::redis::Cluster;

pub(crate) const START_US: u64 = 1_000_000_000_000_000;

/// Runs the case on memory, on Redis and on a Redis Cluster.
pub(crate) async fn each_backend<F: Future<Output = ()>>(case: impl Fn(Backend, Clock) -> F) {
    let clock = Clock::manual(START_US);
    case(Backend::memory_with(clock.clone()), clock).await;
    let server = testkit::need!(testkit::redis());
    let clock = Clock::manual(START_US);
    let backend = connected(&server.url(), server.prefix(), clock.clone()).await;
    case(backend.clone(), clock).await;
    assert!(!backend.fallback().is_active(), "the case must have been decided by Redis");
    backend.shutdown().await;
    let cluster = testkit::need!(cluster());
    let clock = Clock::manual(START_US);
    let backend = connected(&cluster, server.prefix(), clock.clone()).await;
    case(backend.clone(), clock).await;
    assert!(!backend.fallback().is_active(), "the case must have been decided by the cluster");
    backend.shutdown().await;
}

/// The URL of three masters that all cases of this run share.
fn cluster() -> Result<String, Unavailable> {
    static CLUSTER: OnceLock<Result<Cluster, Unavailable>> = OnceLock::new();
    let cluster = CLUSTER.get_or_init(Cluster::start).as_ref().map_err(Clone::clone)?;
    Ok(cluster_url(cluster))
}

pub(crate) fn cluster_url(cluster: &Cluster) -> String {
    let urls = cluster.urls();
    let nodes = urls.iter().map(|url| url.trim_start_matches("redis://").trim_end_matches('/'));
    format!("redis+cluster://{}", nodes.collect::<Vec<_>>().join(","))
}

/// A backend whose connection stands. Its deadline is long: a busy machine must not look like a lost Redis here.
pub(crate) async fn connected(url: &str, prefix: &str, clock: Clock) -> Backend {
    let config = Config { prefix: prefix.to_owned(), ..Config::new(url) };
    let patient = fallback::Config { deadline: Duration::from_secs(10), ..fallback::Config::default() };
    let backend = Backend::redis_with(config, patient, clock).expect("the URL is valid");
    eventually(Duration::from_secs(10), "a connection to Redis", async || {
        backend.connection() == Some(Status::Connected)
    })
    .await;
    backend
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(name).expect("a short name is a valid key")
}
