//! Without Redis: the only place that knows deadlines, when to stop asking, and what says "degraded".
//!
//! Every operation that a caller waits for goes through [`Fallback::attempt`]. It answers `None` when Redis cannot be
//! asked, failed or was too late; the caller then decides from its local state. After a failure the effect in Redis is
//! unknown, so nothing is sent twice but what takes something back ([`Fallback::insist`]). A script that fails on what it
//! was given is no failure of Redis.
//!
//! # Without Redis
//! Each process decides with its share, limit ÷ live replicas. Replicas are counted by heartbeats; the last known number
//! stays when Redis is gone.

mod eviction;
mod meters;
mod mode;
mod replicas;
#[cfg(test)]
mod tests;
mod upkeep;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{sleep, timeout};
use tracing::{error, info, warn};

use self::meters::{Meters, Status};
use self::mode::{Change, Trust};
use self::replicas::Replicas;
use crate::metrics::{FALLBACK_DECISIONS, REDIS_FALLBACK_ACTIVE, REDIS_REPLICAS};
use crate::redis::Redis;
use crate::tasks::Tasks;
use crate::{Clock, Error};

/// The least time in a mode; what a rule that cannot decide alone tells its callers to wait.
pub(crate) const DWELL: Duration = Duration::from_micros(mode::DWELL_US);
const SAY_AGAIN: Duration = Duration::from_secs(1);

/// An answer that makes no sense is logged at most so often.
const PUZZLED_EVERY_US: u64 = 10_000_000;

/// What a rule does while Redis cannot decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Decide in this process with its share of the limit.
    #[default]
    Local,
    /// Let everything through.
    Open,
    /// Refuse everything.
    Closed,
}

#[derive(Clone, Debug)]
pub struct Config {
    /// The longest a caller waits for Redis.
    pub deadline: Duration,
    /// Bounds of what heartbeats may say about the number of live replicas. Before the first one it is the fewest.
    pub fewest_replicas: u32,
    pub most_replicas: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config { deadline: Duration::from_millis(50), fewest_replicas: 1, most_replicas: 1_000 }
    }
}

/// One per backend: the trust in Redis is shared by all primitives. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Fallback {
    inner: Arc<Inner>,
    /// How long the callers of this handle wait.
    deadline: Duration,
}

#[derive(Debug)]
struct Inner {
    config: Config,
    trust: Mutex<Trust>,
    /// Copies of the trust that the hot path reads without the lock.
    is_trusted_fully: AtomicBool,
    is_local: AtomicBool,
    replicas: AtomicU32,
    heard: Mutex<Replicas>,
    may_evict: AtomicBool,
    /// When an answer that makes no sense was last logged.
    puzzled_us: AtomicU64,
    meters: Meters,
}

impl Fallback {
    pub(crate) fn new(config: Config, is_cluster: bool) -> Fallback {
        let fewest = config.fewest_replicas.max(1);
        let (replicas, heard) = (AtomicU32::new(fewest), Mutex::new(Replicas::new(fewest)));
        let (is_trusted_fully, is_local) = (AtomicBool::new(true), AtomicBool::new(false));
        Fallback {
            deadline: config.deadline,
            inner: Arc::new(Inner {
                config,
                trust: Mutex::new(Trust::new(is_cluster)),
                is_trusted_fully,
                is_local,
                replicas,
                heard,
                may_evict: AtomicBool::new(false),
                puzzled_us: AtomicU64::new(0),
                meters: Meters::default(),
            }),
        }
    }

    /// Probes and heartbeats in the background until shutdown.
    pub(crate) fn keep_up(&self, redis: Redis, tasks: &Tasks) {
        metrics::gauge!(REDIS_FALLBACK_ACTIVE).set(0.0);
        tasks.spawn(upkeep::probe(self.clone(), redis.clone()));
        tasks.spawn(upkeep::beat(self.clone(), redis.clone()));
        tasks.spawn(eviction::watch(self.clone(), redis));
    }

    /// Asks Redis, within the deadline and only while it is trusted. `None`: decide without it.
    pub(crate) async fn attempt<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Option<T> {
        if !self.may_ask() {
            metrics::counter!(FALLBACK_DECISIONS).increment(1);
            return None;
        }
        // Boxed: a client's future is large, and a caller that decides in memory should not carry it.
        let (result, now_us) = self.measured(operation, self.deadline, Box::pin(call)).await;
        match result {
            Ok(value) => {
                self.succeeded(now_us);
                return Some(value);
            }
            Err(error) if error.is_an_answer() => self.puzzled(operation, now_us, &error),
            Err(error) => self.failed(now_us, &error),
        }
        metrics::counter!(FALLBACK_DECISIONS).increment(1);
        None
    }

    /// Asks Redis on nobody's behalf, unless this process decides alone. Work in the background may take its time, and
    /// says nothing about how soon callers are answered.
    pub(crate) async fn aside<T>(
        &self,
        operation: &'static str,
        deadline: Duration,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Option<T> {
        if self.is_active() {
            return None;
        }
        self.measured(operation, deadline, Box::pin(call)).await.0.ok()
    }

    /// The result of a call, too late being an error, and when it came.
    async fn measured<T>(
        &self,
        operation: &'static str,
        deadline: Duration,
        call: impl Future<Output = Result<T, Error>>,
    ) -> (Result<T, Error>, u64) {
        let started_us = Clock::System.now_us();
        let result = timeout(deadline, call).await;
        let now_us = Clock::System.now_us();
        let status = match &result {
            Ok(Ok(_)) => Status::Ok,
            Ok(Err(_)) => Status::Error,
            Err(_) => Status::Timeout,
        };
        self.inner.meters.record(operation, status, Duration::from_micros(now_us.saturating_sub(started_us)));
        (result.unwrap_or(Err(Error::Deadline(deadline))), now_us)
    }

    /// Tells Redis what it must hear, also while it is not trusted: over a line that is only slow it arrives behind the
    /// question that it takes back. What did not arrive is said again once Redis decides, for at most `within`; so it
    /// must be something that may be said twice.
    pub(crate) async fn insist<T, F>(&self, within: Duration, say: impl Fn() -> F)
    where
        F: Future<Output = Result<T, Error>>,
    {
        let told = async {
            while say().await.is_err() {
                loop {
                    sleep(SAY_AGAIN.mul_f64(0.5 + fastrand::f64())).await;
                    if !self.is_active() {
                        break;
                    }
                }
            }
        };
        timeout(within, told).await.ok();
    }

    /// Is this process deciding alone?
    pub fn is_active(&self) -> bool {
        self.inner.is_local.load(Ordering::Relaxed)
    }

    /// Is traffic returning to Redis, this replica's or another's?
    pub(crate) fn is_returning(&self) -> bool {
        !self.inner.is_trusted_fully.load(Ordering::Relaxed) && !self.is_active()
    }

    /// Does Redis throw keys away when it is full? Then limits, permits and circuits may be forgotten: fix its settings.
    pub fn may_evict(&self) -> bool {
        self.inner.may_evict.load(Ordering::Relaxed)
    }

    /// Returns what was known before.
    fn set_may_evict(&self, may_evict: bool) -> bool {
        self.inner.may_evict.swap(may_evict, Ordering::Relaxed)
    }

    /// Live replicas by the last heartbeat, this one included.
    pub fn replicas(&self) -> u32 {
        self.inner.replicas.load(Ordering::Relaxed)
    }

    /// The longest a caller waits for Redis.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// The same trust, for callers who wait at least this long.
    pub(crate) fn patient(&self, at_least: Duration) -> Fallback {
        Fallback { inner: self.inner.clone(), deadline: self.deadline.max(at_least) }
    }

    /// Does this process decide some calls without Redis, or all of them?
    fn decides_some_alone(&self) -> bool {
        self.inner.trust.lock().share(Clock::System.now_us()) < 1.0
    }

    /// What a heartbeat tells: live replicas, and how many of them decide some calls alone.
    fn heard(&self, alive: u32, alone: u32) {
        let config = &self.inner.config;
        let bounded = alive.clamp(config.fewest_replicas.max(1), config.most_replicas.max(1));
        let believed = self.inner.heard.lock().heard(bounded, Clock::System.now_us());
        self.inner.replicas.store(believed, Ordering::Relaxed);
        metrics::gauge!(REDIS_REPLICAS).set(f64::from(believed));
        self.inner.trust.lock().heard(bounded == believed && alone == 0);
    }

    fn may_ask(&self) -> bool {
        if self.inner.is_trusted_fully.load(Ordering::Relaxed) {
            return true;
        }
        if self.inner.is_local.load(Ordering::Relaxed) {
            return false;
        }
        let (trust, now_us) = (self.inner.trust.lock(), Clock::System.now_us());
        if trust.is_return_over(now_us) {
            self.inner.is_trusted_fully.store(true, Ordering::Relaxed);
        }
        fastrand::f64() < trust.share(now_us)
    }

    fn succeeded(&self, now_us: u64) {
        self.inner.trust.lock().succeeded(now_us);
    }

    /// Redis is there. Only this call is decided without it: what one caller sent must not cost the others their trust.
    fn puzzled(&self, operation: &'static str, now_us: u64, error: &Error) {
        self.succeeded(now_us);
        let told_us = self.inner.puzzled_us.load(Ordering::Relaxed);
        if now_us >= told_us + PUZZLED_EVERY_US && self.inner.puzzled_us.swap(now_us, Ordering::Relaxed) == told_us {
            error!(operation, %error, "Redis' answer makes no sense; this call was decided without it.");
        }
    }

    fn failed(&self, now_us: u64, error: &Error) {
        let mut trust = self.inner.trust.lock();
        if trust.failed(now_us) == Change::ToLocal {
            self.inner.is_trusted_fully.store(false, Ordering::Relaxed);
            self.inner.is_local.store(true, Ordering::Relaxed);
            metrics::gauge!(REDIS_FALLBACK_ACTIVE).set(1.0);
            warn!(%error, replicas = self.replicas(), "Redis is unavailable; deciding locally with this replica's share.");
        }
    }

    fn is_probe_due(&self) -> bool {
        self.inner.trust.lock().is_probe_due(Clock::System.now_us())
    }

    fn probe_succeeded(&self) {
        let mut trust = self.inner.trust.lock();
        if trust.probe_succeeded(Clock::System.now_us()) == Change::ToShared {
            self.inner.is_local.store(false, Ordering::Relaxed);
            metrics::gauge!(REDIS_FALLBACK_ACTIVE).set(0.0);
            info!("Redis answers again; handing decisions back to it.");
        }
    }
}
