//! Semaphore: at most `n` holders of a key across the fleet.

mod memory;
mod permits;
mod policy;
mod redis;

#[cfg(test)]
mod equivalence;

pub use self::policy::Policy;
