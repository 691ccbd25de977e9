//! What every backend must do the same.

mod breaker;
mod gate;
mod hold;
mod limiter;
mod once;
mod semaphore;
