//! Takes events in and delivers them to subscribers as signed webhooks, with retries and a record of every attempt.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`delivery`] | the rules: who receives an event, how it is signed, what follows an attempt (pure) |

pub mod delivery;
