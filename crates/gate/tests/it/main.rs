//! The gate from outside, against real Redis servers.
//!
//! - `contract`: every case on memory and on Redis; a new backend is one new line in `backends.rs`.
//! - `faults`, `crash`, `fleet`: real processes, real time, broken servers.

mod backends;
mod contract;
