//! testkit's promises, each against the real thing: servers work, break on order, and never outlive their owner.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise, and its helpers are part of it")]

mod kafka_brokers;
mod postgres_server;
mod process;
mod proxy;
mod redis_cluster;
mod redis_sentinel;
mod redis_server;
