//! A pass: the right to one call, and the duty to report it.

use std::fmt;
use std::time::Duration;

use tokio::runtime::Handle;

use super::{Breaker, Outcome, Ticket};
use crate::Key;

/// A ticket from each circuit that let the call pass. It is shown only to the one that issued it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tickets {
    pub(crate) shared: Option<Ticket>,
    pub(crate) local: Option<Ticket>,
}

impl Tickets {
    fn has_probe(&self) -> bool {
        [self.shared, self.local].into_iter().flatten().any(|ticket| ticket.probe.is_some())
    }
}

/// The call may go ahead. Dropping the pass counts as [`Outcome::Ignored`].
#[must_use = "a pass that is dropped says that the call was never made"]
pub struct Pass {
    breaker: Breaker,
    target: Key,
    /// Taken when the report is done; what is left at drop is given back.
    pub(super) tickets: Option<Tickets>,
    started_us: u64,
    degraded: bool,
}

impl Pass {
    pub(super) fn new(breaker: Breaker, target: Key, tickets: Tickets, started_us: u64, degraded: bool) -> Self {
        Pass { breaker, target, tickets: Some(tickets), started_us, degraded }
    }

    /// Is this one of the few calls that find out whether the target is back?
    #[must_use]
    pub fn is_probe(&self) -> bool {
        self.tickets.is_some_and(|tickets| tickets.has_probe())
    }

    /// Was it decided without Redis?
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.degraded
    }

    /// Reports how the call went; it is slow if the time since admission says so.
    pub async fn record(self, outcome: Outcome) {
        let elapsed_us = self.breaker.inner.clock.now_us().saturating_sub(self.started_us);
        self.record_with(outcome, Duration::from_micros(elapsed_us)).await;
    }

    /// Reports how the call went and how long it took. If this future is dropped on the way, the report may or may not
    /// have arrived; a probe's place is given back in any case.
    pub async fn record_with(mut self, outcome: Outcome, latency: Duration) {
        if let Some(tickets) = self.tickets {
            self.breaker.settle(&self.target, tickets, outcome, latency).await;
            self.tickets = None;
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let Some(Tickets { shared, local }) = self.tickets.take().filter(Tickets::has_probe) else { return };
        self.breaker.record_locally(&self.target, local, Outcome::Ignored, false);
        // Outside a runtime nothing can be sent; then the probe's lease ends by itself.
        if shared.is_some() && Handle::try_current().is_ok() {
            let (breaker, target) = (self.breaker.clone(), self.target.clone());
            let tasks = self.breaker.inner.tasks.clone();
            tasks.spawn_draining(async move {
                breaker.settle(&target, Tickets { shared, local: None }, Outcome::Ignored, Duration::ZERO).await;
            });
        }
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Pass")
            .field("target", &self.target)
            .field("tickets", &self.tickets)
            .finish_non_exhaustive()
    }
}
