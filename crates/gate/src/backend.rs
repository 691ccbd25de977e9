//! Where state lives: in this process, or in Redis with this process behind it.
//!
//! Every primitive is made from a backend and shares its connection, its trust in Redis and its clock.

use std::fmt;
use std::time::Duration;

use crate::fallback::{self, Fallback};
use crate::redis::{self, Redis};
use crate::tasks::Tasks;
use crate::{Clock, Error};

/// How large each primitive's local map may grow.
pub(crate) const MOST_LOCAL_KEYS: usize = 1_000_000;

/// What primitives are made from. Cheap to clone.
#[derive(Clone)]
pub struct Backend {
    pub(crate) shared: Option<Redis>,
    pub(crate) fallback: Fallback,
    pub(crate) clock: Clock,
    pub(crate) tasks: Tasks,
    /// Circuits live in this process, whatever lives in Redis.
    pub(crate) has_own_circuits: bool,
}

impl Backend {
    /// Everything in this process.
    pub fn memory() -> Backend {
        Backend::memory_with(Clock::System)
    }

    /// Everything in this process, on this clock.
    pub fn memory_with(clock: Clock) -> Backend {
        Backend {
            shared: None,
            fallback: Fallback::new(fallback::Config::default(), false),
            clock,
            tasks: Tasks::default(),
            has_own_circuits: false,
        }
    }

    /// Redis by URL, with default settings. Returns at once: the connection is made in the background, and until it is
    /// there this process decides alone. Needs a Tokio runtime.
    pub fn redis(url: &str) -> Result<Backend, Error> {
        Backend::redis_with(redis::Config::new(url), fallback::Config::default(), Clock::System)
    }

    /// Redis with everything chosen.
    pub fn redis_with(redis: redis::Config, fallback: fallback::Config, clock: Clock) -> Result<Backend, Error> {
        let tasks = Tasks::default();
        let shared = Redis::open(redis, clock.clone(), &tasks)?;
        let fallback = Fallback::new(fallback, shared.is_cluster());
        fallback.keep_up(shared.clone(), &tasks);
        Ok(Backend { shared: Some(shared), fallback, clock, tasks, has_own_circuits: false })
    }

    /// The same connection and the same trust, for callers who rather wait this long for Redis than decide alone.
    #[must_use]
    pub fn patient(&self, at_least: Duration) -> Backend {
        Backend { fallback: self.fallback.patient(at_least), ..self.clone() }
    }

    /// The same, but every process finds out by itself which targets fail. Rates and permits stay the fleet's. Not for passes
    /// on paper: another process could not report to the circuit that gave one.
    #[must_use]
    pub fn with_own_circuits(&self) -> Backend {
        Backend { has_own_circuits: true, ..self.clone() }
    }

    /// The trust in Redis: whether this process decides alone, and how many replicas there are.
    pub fn fallback(&self) -> &Fallback {
        &self.fallback
    }

    /// The connection, for health pages; `None` in memory.
    pub fn connection(&self) -> Option<redis::Status> {
        self.shared.as_ref().map(Redis::status)
    }

    /// One round trip to Redis, for health checks; at once and fine in memory.
    pub async fn ping(&self) -> Result<(), Error> {
        match &self.shared {
            Some(redis) => redis.ping().await,
            None => Ok(()),
        }
    }

    /// Ends the background tasks and waits for them.
    pub async fn shutdown(&self) {
        self.tasks.shutdown().await;
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend").field("shared", &self.shared).finish_non_exhaustive()
    }
}
