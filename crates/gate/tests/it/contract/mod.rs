//! What every backend must do the same.

mod breaker;
mod gate;
mod limiter;
mod once;
mod semaphore;
