//! What every backend must do the same.

mod breaker;
mod once;
mod semaphore;
