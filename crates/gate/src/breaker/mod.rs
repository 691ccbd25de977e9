//! Breaker: stop calling a target that fails, for the whole fleet.

mod circuit;
mod ledger;
mod memory;
mod policy;
mod redis;
mod window;

#[cfg(test)]
mod equivalence;
#[cfg(test)]
mod tests;

pub use self::circuit::{Force, Outcome, Reason, State};
pub use self::policy::{Policy, Settings};
pub use self::window::Counts;

use crate::holder::Holder;

/// What an admitted call must show when it reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) generation: u64,
    pub(crate) probe: Option<Holder>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Pass(Ticket),
    Reject { retry_after_us: u64, reason: Option<Reason> },
}
