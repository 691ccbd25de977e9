//! The gate from outside, against real Redis servers.
//!
//! - `doors`: TLS and logins.
//! - `contract`: every case on memory and on Redis; a new backend is one new line in `backends.rs`.
//! - `crash`, `faults`, `fleet`: real processes, real time, broken servers. `replica` is this binary as one of several.

mod backends;
mod contract;
mod crash;
mod doors;
mod faults;
mod fleet;
mod load;
mod pitfalls;
mod replica;
