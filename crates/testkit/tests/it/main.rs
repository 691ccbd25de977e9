//! testkit's promises, each against the real thing: servers work, break on order, and never outlive their owner.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test stops at the first surprise, helpers included; these measure how long real things take"
)]

mod disks;
mod kafka_brokers;
mod postgres_server;
mod process;
mod proxy;
#[cfg(feature = "receiver")]
mod receiver;
mod redis_cluster;
mod redis_sentinel;
mod redis_server;
mod servers_command;
