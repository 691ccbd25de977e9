//! Answers "may this go ahead?" for any language: limits by rule, and breakers and semaphores as gates.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`resp`] | `THROTTLE` over Redis' protocol |
//!
//! A tenant's keys are its own: the tenant stands before every key that reaches the gate.

mod metrics;
pub mod resp;
