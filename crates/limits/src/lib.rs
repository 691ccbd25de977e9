//! Answers "may this go ahead?" for any language: limits by rule, and breakers and semaphores as gates.
//!
//! A tenant's keys are its own: the tenant stands before every key that reaches the gate.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`rule`] | what a rule says and which one speaks for a key (pure) |
//! | [`envoy`] | the same for Envoy's descriptors (pure) |
//! | [`engine`] | from a key and a cost to a decision: what every protocol asks |
//! | `book`, `file`, `store` | the rules in force, from files and from the API |
//! | `http` | the API over HTTP |
//! | [`gates`] | rate, circuit and concurrency of a target: enter, exit |
//! | [`grpc`] | Envoy's rate-limit service, and our own for checks and gates |
//! | [`resp`] | `THROTTLE` over Redis' protocol |

#[cfg(feature = "bench")]
pub mod bench;
mod book;
pub mod config;
pub mod engine;
pub mod envoy;
pub mod error;
mod file;
pub mod gates;
pub mod grpc;
mod http;
mod metrics;
pub mod resp;
pub mod rule;
mod seen;
mod store;

use std::sync::Arc;

use gate::Backend;
use platform::{db::Database, shutdown::Tasks};

use self::{book::Keeper, store::Store};
pub use self::{
    config::Config,
    engine::Engine,
    error::Error,
    http::{CheckLane, routes},
    store::{MIGRATIONS, end_tenant},
};

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
    keeper: Keeper,
    store: Store,
    shared: Backend,
}

impl Limits {
    /// Reads the rules and follows them; fails if the database does, or a file of rules is wrong.
    pub async fn start(config: &Config, parts: Parts, tasks: &Tasks) -> Result<Self, Error> {
        let Parts { database, shared } = parts;
        let (store, engine) = (Store::new(database), Engine::new(&shared, config.envoy_algorithm, config.log_sample));
        let keeper = Keeper::start(config, store.clone(), engine.clone(), tasks).await?;
        Ok(Limits { inner: Arc::new(Inner { engine, keeper, store, shared }) })
    }

    /// Decides over keys and descriptors.
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    pub(crate) fn keeper(&self) -> &Keeper {
        &self.inner.keeper
    }

    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
    }

    /// Where counters, circuits and permits live.
    pub fn shared(&self) -> &Backend {
        &self.inner.shared
    }
}
