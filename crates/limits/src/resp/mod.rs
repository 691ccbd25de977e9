//! `THROTTLE` and `CL.THROTTLE` over Redis' protocol, so that clients of redis-cell and throttlecrab need no change.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`frame`] | bytes to commands (pure) |
//! | [`reply`] | replies to bytes (pure) |
//! | [`throttle`] | the one question, and its five numbers |
//! | [`session`] | who the client is, and what else it may say |
//! | [`connection`] | read, decide together, answer with one write |
//!
//! Limits come with each command and are kept by the gate: in memory, or in Redis for the whole fleet.
//!
//! # Without Redis
//! As the gate's limiter: each process admits its share. A reply has no place to say so; metrics and logs do.

mod connection;
mod frame;
mod reply;
mod session;
mod throttle;

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use gate::{Backend, limiter::Limiter};
use metrics::Counter;
use platform::{http_server, shutdown::Tasks};
use tenancy::door::Door;
use tokio::{net::TcpListener, sync::Semaphore};

use self::connection::Connection;
use crate::metrics::DECISIONS;

/// Questions to Redis of all connections together: beyond, the deadline of the last would pass while it waits.
const MOST_IN_FLIGHT: usize = 1024;

/// What the listener allows its clients.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub max_connections: usize,
    /// From a command's first byte to its last, and for taking an answer.
    pub command_timeout: Duration,
    /// Without a command.
    pub idle_timeout: Duration,
}

struct Server {
    door: Door,
    limiter: Limiter,
    limits: Limits,
    /// In memory every question is answered at once, so none is ever under way.
    in_flight: Option<Semaphore>,
    decided: Decided,
    last_id: AtomicI64,
}

/// Serves until shutdown. Commands that have arrived by then are answered.
pub async fn serve(listener: TcpListener, door: Door, backend: &Backend, limits: Limits, tasks: Tasks) {
    let server = Arc::new(Server {
        door,
        limiter: Limiter::new(backend),
        limits,
        in_flight: backend.connection().map(|_| Semaphore::new(MOST_IN_FLIGHT)),
        decided: Decided::new(),
        last_id: AtomicI64::new(0),
    });
    let stopping = tasks.stopping().clone();
    let handle = move |stream| Connection::serve(server.clone(), stream, stopping.clone());
    http_server::accept("resp", listener, limits.max_connections, tasks, handle).await;
}

impl Server {
    fn next_id(&self) -> i64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Decisions, counted once per read.
struct Decided {
    allowed: Counter,
    denied: Counter,
}

impl Decided {
    fn new() -> Decided {
        let counter = |result| metrics::counter!(DECISIONS, "door" => "resp", "result" => result);
        Decided { allowed: counter("allowed"), denied: counter("denied") }
    }

    fn count(&self, allowed: u64, denied: u64) {
        self.allowed.increment(allowed);
        self.denied.increment(denied);
    }
}
