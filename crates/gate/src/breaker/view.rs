//! What an operator sees of a circuit.

use std::time::Duration;

use futures_util::future::join_all;

use super::circuit::Snapshot;
use super::{Breaker, Counts, Reason, State};
use crate::{Error, Key};

const MOST_PER_PAGE: u32 = 1_000;

/// One circuit, as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    pub state: State,
    /// Why it is not simply closed.
    pub reason: Option<Reason>,
    /// Grows with every change of state.
    pub generation: u64,
    /// How often it opened without a healthy stretch in between.
    pub trips: u32,
    /// Failures in a row, while closed.
    pub failures: u32,
    /// What was counted in the window, while closed.
    pub counts: Counts,
    /// Probes that are out, while half-open.
    pub probes: u32,
    /// Probes that succeeded, while half-open.
    pub successes: u32,
    /// How long it has been in this state. Meaningless for a circuit that never changed.
    pub age: Duration,
    /// When the next call may pass; zero if one may now.
    pub retry_after: Duration,
    /// Read from this process, because Redis did not answer.
    pub degraded: bool,
}

impl View {
    fn new(snapshot: Snapshot, degraded: bool) -> View {
        View {
            state: snapshot.state,
            reason: snapshot.reason,
            generation: snapshot.generation,
            trips: snapshot.trips,
            failures: snapshot.failures,
            counts: snapshot.counts,
            probes: snapshot.probes,
            successes: snapshot.successes,
            age: Duration::from_micros(snapshot.age_us),
            retry_after: Duration::from_micros(snapshot.retry_after_us),
            degraded,
        }
    }
}

impl State {
    /// The word for it, as in metrics and APIs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            State::Closed => "closed",
            State::Open => "open",
            State::HalfOpen => "half_open",
            State::ForcedOpen => "forced_open",
            State::ForcedClosed => "forced_closed",
        }
    }
}

/// Some circuits, and where to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub circuits: Vec<(Key, View)>,
    /// Give this to the next call; `None` is the end.
    pub next: Option<String>,
}

impl Breaker {
    /// Circuits that changed their state lately, in the whole fleet, latest first; at most 1,000 a page. Without Redis:
    /// the circuits of this process, by name.
    ///
    /// # Errors
    /// Redis did not answer.
    pub async fn list(&self, after: Option<&str>, most: u32) -> Result<Page, Error> {
        let most = most.clamp(1, MOST_PER_PAGE);
        let (targets, next) = match &self.inner.shared {
            Some(shared) => {
                let listed = self.inner.fallback.attempt("breaker_list", shared.list(after, most)).await;
                listed.ok_or(Error::Deadline(self.inner.fallback.deadline()))?
            }
            None => self.inner.local.list(after, most),
        };
        let views = join_all(targets.iter().map(|target| self.view(target))).await;
        Ok(Page { circuits: targets.into_iter().zip(views).collect(), next })
    }

    /// The circuit of one target, as the fleet sees it.
    pub async fn view(&self, target: &Key) -> View {
        if let Some(shared) = &self.inner.shared
            && let Some(snapshot) = self.inner.fallback.attempt("breaker_view", shared.view(target, &self.policy)).await
        {
            return View::new(snapshot, false);
        }
        let now_us = self.inner.clock.now_us();
        let mut snapshot = self.inner.local.view(target, &self.own_policy(), now_us);
        if let Some((retry_after_us, reason)) = self.inner.ledger.open_for(target, now_us) {
            let state = if reason == Some(Reason::Forced) { State::ForcedOpen } else { State::Open };
            snapshot = Snapshot { state, reason, retry_after_us, ..snapshot };
        }
        View::new(snapshot, self.inner.shared.is_some())
    }
}
