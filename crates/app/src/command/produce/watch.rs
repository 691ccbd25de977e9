//! Follows a run's deliveries to their end, through the API's list of deliveries.
//!
//! The list is read newest first and without a filter, which costs the server a walk along its primary key. The first
//! pass reads the whole run, later ones only from the newest to the oldest delivery that had not ended.

use std::{collections::HashSet, time::Duration};

use anyhow::Context;
use dispatch::delivery::Status;
use indicatif::ProgressBar;
use platform::shutdown::Tasks;
use serde::Deserialize;
use time::OffsetDateTime;
use tokio::time::Instant;

use crate::command::{
    client::Client,
    samples::{Percentiles, Samples},
    terminal,
};

const PAGE: usize = 1000;
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
/// Ids are made by replicas, whose clocks may be so far apart; what is older is not of this run.
const SKEW: Duration = Duration::from_secs(300);

#[derive(Deserialize)]
struct Page {
    data: Vec<Delivery>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Delivery {
    id: String,
    subscription_id: String,
    status: Status,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    updated_at: OffsetDateTime,
    last_error: Option<String>,
}

/// What is kept of a delivery that has ended.
struct Ending {
    status: Status,
    accepted_at: OffsetDateTime,
    ended_at: OffsetDateTime,
}

/// How deliveries ended.
#[derive(Clone, Default)]
pub(super) struct Delivered {
    pub delivered: u64,
    pub failed: u64,
    pub cancelled: u64,
    /// Why one of them was not delivered, or is not yet.
    pub problem: Option<String>,
    first: Option<OffsetDateTime>,
    last: Option<OffsetDateTime>,
    samples: Samples,
}

impl Delivered {
    /// By the server's clock, from the first acceptance to the last delivery.
    pub(super) fn span(&self) -> Duration {
        let span = self.first.zip(self.last).map(|(first, last)| last - first);
        span.and_then(|span| span.try_into().ok()).unwrap_or_default()
    }

    pub(super) fn latencies(&self) -> Option<Percentiles> {
        Samples::percentiles([&self.samples])
    }

    /// How many of so many have not ended.
    pub(super) fn waiting(&self, of: u64) -> u64 {
        of.saturating_sub(self.ended())
    }

    fn ended(&self) -> u64 {
        self.delivered + self.failed + self.cancelled
    }

    fn add(&mut self, ending: &Ending) {
        let Ending { status, accepted_at, ended_at } = *ending;
        match status {
            Status::Delivered => {
                self.delivered += 1;
                self.last = self.last.max(Some(ended_at));
                self.samples.add((ended_at - accepted_at).try_into().unwrap_or_default());
            }
            Status::Failed => self.failed += 1,
            _ => self.cancelled += 1,
        }
        self.first = Some(self.first.map_or(accepted_at, |first| first.min(accepted_at)));
    }
}

pub(super) struct Watch {
    subscriptions: HashSet<String>,
    not_before: OffsetDateTime,
    accepted: u64,
    patience: Duration,
    ended: Delivered,
    /// Known once every accepted event's delivery was seen.
    open: Option<HashSet<String>>,
    /// Where the next pass begins: the delivery just above the newest that has not ended.
    above: Option<String>,
}

/// What one pass saw.
struct Pass {
    ended: Vec<Ending>,
    open: HashSet<String>,
    above: Option<String>,
    problem: Option<String>,
}

impl Pass {
    fn seen(&self) -> u64 {
        (self.ended.len() + self.open.len()) as u64
    }
}

impl Watch {
    pub(super) fn new(
        subscriptions: HashSet<String>,
        since: OffsetDateTime,
        accepted: u64,
        patience: Duration,
    ) -> Self {
        let not_before = since - SKEW;
        let ended = Delivered::default();
        Watch { subscriptions, not_before, accepted, patience, ended, open: None, above: None }
    }

    /// Returns early when nothing has ended for the patience, or the process is to leave: with what is known, or why the list cannot be read.
    pub(super) async fn until_all_ended(
        mut self,
        client: &mut Client,
        bar: &ProgressBar,
        tasks: &Tasks,
    ) -> anyhow::Result<Delivered> {
        let mut best = self.ended.clone();
        let mut moved_at = Instant::now();
        let mut last_look = Ok(());
        while best.ended() < self.accepted && moved_at.elapsed() < self.patience {
            let started = Instant::now();
            // A server that restarts answers again in a moment.
            let Some(pass) = tasks.leaving().run_until_cancelled(self.pass(client)).await else { return Ok(best) };
            last_look = match pass {
                Ok(mut pass) => {
                    let problem = pass.problem.take().or(best.problem.take());
                    let now = self.settle(pass);
                    if now.ended() > best.ended() {
                        (best, moved_at) = (now, Instant::now());
                        bar.set_position(best.ended());
                    }
                    best.problem = problem;
                    Ok(())
                }
                Err(error) => Err(error),
            };
            if best.ended() < self.accepted {
                // At most half of the time is spent asking.
                let pause = tokio::time::sleep(started.elapsed().max(SHORTEST_PAUSE));
                if tasks.leaving().run_until_cancelled(pause).await.is_none() {
                    return Ok(best);
                }
            }
        }
        let so_far = || {
            let [delivered, accepted] = [best.delivered, self.accepted].map(terminal::count);
            format!("{delivered} of {accepted} accepted events were delivered when that could last be seen")
        };
        last_look.with_context(so_far)?;
        Ok(best)
    }

    async fn pass(&self, client: &mut Client) -> anyhow::Result<Pass> {
        let expected = self.open.as_ref().map_or(self.accepted, |open| open.len() as u64);
        let mut pass = Pass { ended: Vec::new(), open: HashSet::new(), above: self.above.clone(), problem: None };
        let mut cursor = self.above.clone();
        loop {
            let after = cursor.map_or_else(String::new, |id| format!("&after={id}"));
            let page: Page = client.get(&format!("/v1/deliveries?limit={PAGE}{after}")).await?;
            for delivery in page.data {
                if delivery.created_at < self.not_before {
                    return Ok(pass);
                }
                self.look_at(&mut pass, &delivery);
                if pass.seen() == expected {
                    return Ok(pass);
                }
            }
            if page.next.is_none() {
                return Ok(pass);
            }
            cursor = page.next;
        }
    }

    fn look_at(&self, pass: &mut Pass, delivery: &Delivery) {
        let is_ours = match &self.open {
            Some(open) => open.contains(&delivery.id),
            None => self.subscriptions.contains(&delivery.subscription_id),
        };
        if is_ours && delivery.status != Status::Delivered && delivery.last_error.is_some() {
            pass.problem.clone_from(&delivery.last_error);
        }
        if is_ours && !delivery.status.is_final() {
            pass.open.insert(delivery.id.clone());
        } else {
            if is_ours {
                let Delivery { status, created_at, updated_at, .. } = *delivery;
                pass.ended.push(Ending { status, accepted_at: created_at, ended_at: updated_at });
            }
            if pass.open.is_empty() {
                pass.above = Some(delivery.id.clone());
            }
        }
    }

    /// Keeps what the pass learnt and returns all that has ended. A first pass that missed some is only good for a look.
    fn settle(&mut self, pass: Pass) -> Delivered {
        let mut sum = self.ended.clone();
        pass.ended.iter().for_each(|ending| sum.add(ending));
        if self.open.is_some() || pass.seen() == self.accepted {
            self.ended = sum.clone();
            self.open = Some(pass.open);
            self.above = pass.above;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::client::Server;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_gone_is_told_from_deliveries_that_wait() {
        let watch = Watch::new(HashSet::new(), OffsetDateTime::UNIX_EPOCH, 3, Duration::from_secs(1));
        let mut client = Server::nowhere().client();
        let outcome = watch.until_all_ended(&mut client, &ProgressBar::hidden(), &Tasks::new()).await;
        let error = format!("{:#}", outcome.err().unwrap());
        assert!(error.contains("0 of 3 accepted") && error.contains("no Tidegate answers"), "{error}");
    }
}
