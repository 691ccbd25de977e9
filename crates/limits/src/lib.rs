//! Answers "may this go ahead?" for any language: limits by rule, and breakers and semaphores as gates.
//!
//! A tenant's keys are its own: the tenant stands before every key that reaches the gate.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`rule`] | what a rule says and which one speaks for a key (pure) |
//! | [`envoy`] | the same for Envoy's descriptors (pure) |
//! | [`engine`] | from a key and a cost to a decision: what every protocol asks |
//! | `http` | the API over HTTP |
//! | [`gates`] | rate, circuit and concurrency of a target: enter, exit |
//! | [`resp`] | `THROTTLE` over Redis' protocol |

pub mod config;
pub mod engine;
pub mod envoy;
pub mod error;
pub mod gates;
mod http;
mod metrics;
pub mod resp;
pub mod rule;

use std::sync::Arc;

use gate::{Backend, limiter::Limiter};
use platform::{db::Database, shutdown::Tasks};

pub use self::{config::Config, engine::Engine, error::Error, http::routes};

/// What limits stand on.
pub struct Parts {
    pub database: Database,
    /// Where counters live: in Redis for the whole fleet, or in this process.
    pub shared: Backend,
}

/// The role. Cheap to clone.
#[derive(Clone)]
pub struct Limits {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Engine,
    shared: Backend,
}

impl Limits {
    /// Reads the rules and follows them; fails if the database does, or a file of rules is wrong.
    #[expect(clippy::unused_async, reason = "rules are read from the database next")]
    pub async fn start(config: Config, parts: Parts, _tasks: &Tasks) -> Result<Self, Error> {
        let Parts { database: _, shared } = parts;
        let engine = Engine::new(Limiter::new(&shared), config.envoy_algorithm);
        Ok(Limits { inner: Arc::new(Inner { engine, shared }) })
    }

    /// Decides over keys and descriptors.
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// Where counters, circuits and permits live.
    pub fn shared(&self) -> &Backend {
        &self.inner.shared
    }
}
