//! Real servers for tests, as child processes on free loopback ports with temporary data.
//!
//! `redis()` gives a test its own corner of a server shared by the whole run; `redis::Server::start()` gives it a server
//! of its own, to break. Every start is synchronous, so it works in plain tests and property tests too.
//! A server never outlives the process that started it, however that process ends.
//!
//! - `need!` skips the test, with the reason on record, when its server cannot be had; under `CI=true` it fails instead.
//! - `process` keeps a server alive for exactly as long as its owner; `wait` is the only place that polls.
//! - `ledger` counts which tests used what; the binary `servers` prints it.
//! - `proxy` makes a network bad on order, `disk` a disk full, `strace` a disk broken.
//! - `receiver` takes webhooks and answers them well, late, badly or with malice; `official` asks the official libraries
//!   what they think of a webhook.
#![expect(
    clippy::disallowed_methods,
    reason = "the test harness reads its own environment and waits for processes by polling the clock with a deadline"
)]

pub mod disk;
pub mod fetch;
pub mod find;
mod fresh;
pub mod kafka;
pub mod ledger;
pub mod local;
pub mod official;
mod port;
pub mod postgres;
pub mod process;
pub mod proxy;
#[cfg(feature = "receiver")]
pub mod receiver;
pub mod redis;
pub mod resp;
pub mod strace;
mod unavailable;
pub mod wait;

pub use kafka::shared as kafka;
pub use postgres::shared as postgres;
pub use redis::shared as redis;
pub use unavailable::{Server, Skipped, Unavailable};
pub use wait::{eventually, wait_until};

/// Takes the server, or ends the test: recorded as skipped with the reason, or as a failure where `CI` is `true`.
#[macro_export]
macro_rules! need {
    ($server:expr) => {
        match $server {
            Ok(server) => server,
            Err(unavailable) => {
                $crate::ledger::skip(&unavailable);
                return $crate::Skipped::skipped();
            }
        }
    };
}
