//! Gate: rate limiter, circuit breaker, semaphore and once, alone or joined in one decision.
//!
//! | folder | what callers hold |
//! | --- | --- |
//! | `limiter` `breaker` `semaphore` `once` | one primitive each: rules (pure), memory, Redis (Lua), facade |
//! | `gate` | the three that guard a call, decided together in one round trip |
//! | `layer` | the same as tower layers |
//! | `backend` | where state lives: this process, or Redis with this process behind it |
//!
//! What always holds: rules take `now` and do no I/O; time is integer microseconds; one operation is one Redis call;
//! a denied request writes nothing; every Redis key expires; every map is bounded.

pub mod backend;
#[cfg(feature = "bench")]
pub mod bench;
pub mod breaker;
pub mod clock;
pub mod fallback;
pub mod gate;
pub mod key;
pub mod layer;
pub mod limiter;
pub mod once;
pub mod redis;
pub mod semaphore;

mod error;
mod holder;
mod map;
mod metrics;
#[cfg(test)]
mod rig;
mod tasks;

pub use backend::Backend;
pub use clock::Clock;
pub use error::Error;
pub use holder::Holder;
pub use key::Key;
