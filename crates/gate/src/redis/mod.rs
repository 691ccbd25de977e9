//! Redis: one multiplexed connection, kept up in the background, and one call per operation.
//!
//! Opening never waits: the connection is dialled by a task, so a process starts without Redis and says so. Dials are
//! single-flight, at most two a second, with full jitter. Callers get an error at once while it is known to be down.
//! Deadlines and what to do without Redis are `fallback.rs`'s business, not this module's.

mod batch;
mod connection;
mod dial;
pub(crate) mod reply;
mod script;
mod url;

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

pub(crate) use self::batch::{Batch, Call};
pub use self::dial::Status;
pub(crate) use self::script::{Arg, Script};

use self::connection::Connection;
use self::dial::Line;
use self::url::Topology;
use crate::tasks::Tasks;
use crate::{Clock, Error, Key};

/// Where Redis is and how its keys are named.
#[derive(Clone)]
pub struct Config {
    /// See `redis/url.rs` for standalone, Sentinel and Cluster forms.
    pub url: String,
    /// Goes before every key, e.g. `prod:`.
    pub prefix: String,
    /// PEM of the authority that signed the server's certificate; the system's own when absent.
    pub root_certificate: Option<Vec<u8>>,
}

impl Config {
    pub fn new(url: impl Into<String>) -> Config {
        Config { url: url.into(), prefix: String::new(), root_certificate: None }
    }

    /// Says what is wrong with the URL, before anything is opened.
    pub fn check(&self) -> Result<(), Error> {
        Topology::parse(&self.url).map(drop)
    }
}

/// The URL may hold a password.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// A handle on Redis. Cheap to clone.
#[derive(Clone)]
pub struct Redis {
    inner: Arc<Inner>,
}

struct Inner {
    prefix: String,
    clock: Clock,
    is_cluster: bool,
    line: watch::Receiver<Line>,
    redial: dial::Request,
}

impl Redis {
    /// Checks the URL and starts dialling. Needs a Tokio runtime.
    pub(crate) fn open(config: Config, clock: Clock, tasks: &Tasks) -> Result<Redis, Error> {
        let topology = Topology::parse(&config.url)?;
        let is_cluster = matches!(topology, Topology::Cluster { .. });
        let (line, redial) = dial::start(topology, config.root_certificate, tasks);
        Ok(Redis { inner: Arc::new(Inner { prefix: config.prefix, clock, is_cluster, line, redial }) })
    }

    /// The full name of a key: `<prefix>tg:v1:<kind>:{key}`.
    pub(crate) fn name(&self, kind: &str, key: &Key) -> String {
        key.redis_name(&self.inner.prefix, kind)
    }

    /// The name of something beside a key, in the same slot.
    pub(crate) fn name_beside(&self, kind: &str, key: &Key, what: &str) -> String {
        format!("{}:{what}", self.name(kind, key))
    }

    /// A key of this installation's own, about no key of a caller's.
    pub(crate) fn own_name(&self, kind: &str) -> String {
        format!("{}tg:v1:{kind}", self.inner.prefix)
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.inner.is_cluster
    }

    /// Runs a script once. `now` is appended as its last argument.
    pub(crate) async fn run(
        &self,
        script: &Script,
        keys: &[String],
        args: Vec<impl Into<Arg>>,
    ) -> Result<redis::Value, Error> {
        let mut args: Vec<Arg> = args.into_iter().map(Into::into).collect();
        args.push(Arg::Text(self.inner.clock.server_now()));
        let (mut connection, generation) = self.connection().await?;
        let result = connection.run(script, keys, &args).await;
        self.note(generation, result)
    }

    /// Sends one plain command.
    pub(crate) async fn command(&self, command: &redis::Cmd) -> Result<redis::Value, Error> {
        let (mut connection, generation) = self.connection().await?;
        let result = connection.send(command).await;
        self.note(generation, result)
    }

    /// One round trip.
    pub(crate) async fn ping(&self) -> Result<(), Error> {
        self.command(&redis::cmd("PING")).await.map(drop)
    }

    /// The state of the connection, for health pages.
    pub fn status(&self) -> Status {
        self.inner.line.borrow().status()
    }

    /// Gives up a connection that answers too late to be trusted, and dials a new one.
    pub(crate) fn reconnect(&self) {
        let generation = self.inner.line.borrow().generation();
        self.inner.redial.ask(generation);
    }

    async fn connection(&self) -> Result<(Connection, u64), Error> {
        if let Some(up) = self.inner.line.borrow().connected() {
            return Ok(up);
        }
        let mut line = self.inner.line.clone();
        let settled = line.wait_for(|line| !line.is_dialling()).await.map_err(|_| Error::NotConnected)?;
        settled.connected().ok_or(Error::NotConnected)
    }

    fn note(&self, generation: u64, result: Result<redis::Value, redis::RedisError>) -> Result<redis::Value, Error> {
        result.map_err(|error| {
            if dial::is_line_dead(&error) {
                self.inner.redial.ask(generation);
            }
            Error::Redis(error)
        })
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("status", &self.status()).finish_non_exhaustive()
    }
}
