//! A broken Redis under load: bars 24 to 33 of the reliability facts, in forms short enough for every run.
//!
//! Replicas here are backends of their own in one process: own connection, own trust, own heartbeat. Full forms run for
//! a minute where these run for seconds; what must hold is the same.

mod breaker;
mod cluster;
mod degraded;
mod gone;
mod hold;
mod line;
mod orders;
mod sentinel;
mod stalled;

use std::time::Duration;
use testkit::eventually;

use futures_util::future::join_all;
use gate::limiter::{Algorithm, Limiter, Policy};
use gate::redis::{Config, Status};
use gate::{Backend, Clock, fallback};

use crate::backends::key;
use crate::load::{Call, offer, wall_us};

const LIMIT: u64 = 1_000;
const BURST: u64 = 100;
const REPLICAS: usize = 3;

/// Three replicas with the settings of production.
struct Fleet {
    backends: Vec<Backend>,
    limiters: Vec<Limiter>,
}

impl Fleet {
    async fn connect(urls: &[String]) -> Fleet {
        Fleet::with_deadline(urls, fallback::Config::default().deadline).await
    }

    /// For tests in which a busy machine must not look like a lost Redis.
    async fn patient(urls: &[String]) -> Fleet {
        Fleet::with_deadline(urls, Duration::from_secs(5)).await
    }

    async fn with_deadline(urls: &[String], deadline: Duration) -> Fleet {
        let backends: Vec<Backend> = urls.iter().map(|url| backend(url, deadline)).collect();
        for backend in &backends {
            eventually(Duration::from_secs(30), "every replica to be connected and to know the others", async || {
                backend.connection() == Some(Status::Connected) && backend.fallback().replicas() as usize == urls.len()
            })
            .await;
        }
        let limiters = backends.iter().map(Limiter::new).collect();
        Fleet { backends, limiters }
    }

    /// Twice the limit, evenly from all replicas.
    async fn load(&self, lasting: Duration) -> Vec<Call> {
        let per_second = 2 * LIMIT / self.limiters.len() as u64;
        let key = key("loaded");
        let loads = self.limiters.iter().map(|limiter| offer(limiter, &key, policy(), per_second, lasting));
        join_all(loads).await.concat()
    }

    fn is_any_degraded(&self) -> bool {
        self.backends.iter().any(|backend| backend.fallback().is_active())
    }

    async fn shutdown(self) {
        for backend in &self.backends {
            backend.shutdown().await;
        }
    }
}

fn backend(url: &str, deadline: Duration) -> Backend {
    let settings = fallback::Config { deadline, ..fallback::Config::default() };
    Backend::redis_with(Config::new(url), settings, Clock::System).expect("the URL is valid")
}

fn policy() -> Policy {
    let policy = Policy::new(Algorithm::Gcra, LIMIT, Duration::from_secs(1));
    policy.and_then(|policy| policy.burst(BURST)).expect("the policy is valid")
}

/// The clock that calls are stamped with.
fn now_us() -> u64 {
    wall_us()
}

/// Waits for a moment of the load: that is the fault's schedule, not a hope.
async fn after(time: Duration) {
    tokio::time::sleep(time).await;
}
