//! The rules of one delivery, and nothing else: no clock, no lock, no I/O.
//!
//! | module | what it decides |
//! | --- | --- |
//! | [`event_type`] | which subscriptions an event's type reaches |
//! | [`filter`] | which of them its content reaches, and why not the others |
//! | [`outcome`] | what follows an attempt: done, again later, or given up |
//! | [`schedule`] | how long to wait before each further attempt |
//! | [`signature`], [`verify`] | how a receiver knows that the call is ours |
//! | [`status`] | where a delivery stands |

pub mod event_type;
pub mod filter;
pub mod outcome;
pub mod schedule;
pub mod signature;
pub mod status;
pub mod verify;

pub use self::{
    event_type::{EventType, Matcher},
    filter::{Document, Filter, Written},
    outcome::{CLASSES, GivenUp, Next, Outcome, RetryPolicy, decide, should_disable},
    schedule::RetrySchedule,
    signature::{MAX_LIVE, MessageId, Signer, SigningKey, SigningSecret},
    status::Status,
};
