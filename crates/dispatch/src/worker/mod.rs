//! The worker: claims what is due, keeps each destination in a lane of its own, calls, records.
//!
//! A delivery is owned by its lease from claim to record. A process that dies loses only its leases, which end by
//! themselves; one that stops gives them back unspent. No call is made without a pass of the gate.

mod attempt;
mod health;
mod lane;
mod leases;
mod meters;
mod outcomes;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use gate::gate::Gate;
use platform::{crash::crash_point, http_client::HttpClient, problem::Chain, shutdown::Tasks};
use tokio::{
    sync::{Notify, Semaphore},
    time::Instant,
};

use self::{lane::Lanes, leases::Leases, meters::Meters, outcomes::Ended};
use crate::{
    batch::Batcher,
    catalog::{Catalog, REFRESH, SubscriptionKey},
    config::Config,
    error::Error,
    metrics as names,
    place::{Place, Weight},
    store::{Claimed, Found, Lease, Store, records::AIR},
};

/// How often the age of the oldest delivery is measured: it is one query over all that wait.
const LAG_EVERY: Duration = Duration::from_secs(5);

/// How often deliveries that nobody would ever take are looked for: what is stuck comes back within a minute.
const RESCUE_EVERY: Duration = Duration::from_secs(15);
/// A lease that ends later than this was not given by a worker, whatever the configuration of its replica.
const LONGEST_LEASE: Duration = crate::config::LONGEST_LEASE;

/// How long an outcome waits for others under load, where nobody waits for it. Each of several workers has fewer to write, and
/// a statement costs the database they share as much as dozens of rows.
const LINGER: Duration = Duration::from_millis(100);
/// Questions to the gate that are under way at a time.
const ASKING: usize = 256;

/// What an attempt needs.
pub struct Deps {
    pub store: Store,
    pub catalog: Catalog,
    pub client: HttpClient,
    pub gate: Gate,
    pub lease: Lease,
    pub config: Config,
}

/// A claimed delivery and when it was claimed, so that an old one is given back rather than attempted past its lease.
pub(crate) struct Job {
    pub(crate) delivery: Claimed,
    pub(crate) claimed_at: Instant,
    /// Of all and of its tenant.
    _weights: [Weight; 2],
    in_lane: Option<Weight>,
}

/// Delivers events. Cheap to clone.
#[derive(Clone)]
pub struct Worker {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) deps: Deps,
    outcomes: Batcher<Ended, ()>,
    leases: Arc<Leases>,
    lanes: Lanes,
    meters: Meters,
    tasks: Tasks,
    wake: Notify,
    /// Questions to the gate at a time.
    asking: Semaphore,
    /// The poller stopped for want of room: whoever makes room wakes it.
    is_short_of_room: AtomicBool,
}

impl Worker {
    pub fn start(deps: Deps, tasks: &Tasks) -> Self {
        let store = deps.store.clone();
        let write = move |ended| outcomes::record(store.clone(), ended);
        let outcomes = Batcher::start(tasks, "outcomes", 2, LINGER, write);
        let leases = Arc::<Leases>::default();
        tasks.spawn_servant("leases", Arc::clone(&leases).renew(deps.store.clone(), deps.lease.clone()));
        tasks.spawn_servant("flights", deps.store.clone().end_flights());
        let (lanes, meters) = (Lanes::new(deps.config.max_in_flight), Meters::new());
        let (wake, asking, is_short_of_room) = (Notify::new(), Semaphore::new(ASKING), AtomicBool::new(false));
        let inner =
            Inner { deps, outcomes, leases, lanes, meters, tasks: tasks.clone(), wake, asking, is_short_of_room };
        let worker = Worker { inner: Arc::new(inner) };
        tasks.spawn("delivery poller", worker.clone().poll());
        tasks.spawn("delivery lag", worker.clone().watch_lag());
        tasks.spawn("stuck deliveries", worker.clone().rescue());
        tasks.spawn("resumed subscriptions", worker.clone().resume());
        worker
    }

    /// Room for one fresh delivery, which may then be born leased to this process.
    pub(crate) fn promise(&self, tenant: &str) -> Option<Place> {
        if self.inner.tasks.stopping().is_cancelled() { None } else { self.inner.lanes.promise(tenant) }
    }

    /// Waits for room for so many, while there is hope that it is made within `patience`.
    pub(crate) async fn wait_for_room(&self, count: usize, patience: Duration) {
        let room = self.inner.lanes.wait_for_room(count, patience);
        self.inner.tasks.stopping().run_until_cancelled(room).await;
    }

    /// Waits until little is ahead of what comes next.
    pub(crate) async fn wait_for_lull(&self) {
        self.inner.tasks.stopping().run_until_cancelled(self.inner.lanes.wait_for_lull()).await;
    }

    /// Takes deliveries that are leased to this process already.
    pub fn take(&self, deliveries: Vec<Claimed>) {
        let claimed_at = Instant::now();
        for delivery in deliveries {
            self.inner.offer(self.inner.lanes.job(delivery, claimed_at));
        }
    }

    /// Something is due: look now.
    pub fn wake(&self) {
        self.inner.wake.notify_one();
    }

    async fn poll(self) {
        let Inner { deps, tasks, wake, .. } = &*self.inner;
        let stopping = tasks.stopping().clone();
        let mut pause = Duration::ZERO;
        loop {
            tokio::select! {
                biased;
                () = stopping.cancelled() => break,
                () = wake.notified() => (),
                () = tokio::time::sleep(pause) => (),
            }
            pause = match self.claim_all().await {
                Ok(pause) => pause,
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "Due deliveries could not be claimed; trying again.");
                    deps.config.poll_interval.min(Duration::from_secs(1))
                }
            };
        }
        self.leave().await;
    }

    /// Claims while there is room and something due; returns how long to wait before looking again. One that stops would give back
    /// what it claims, and find it due again.
    async fn claim_all(&self) -> Result<Duration, Error> {
        let Inner { deps, lanes, tasks, .. } = &*self.inner;
        loop {
            if tasks.stopping().is_cancelled() {
                return Ok(Duration::ZERO);
            }
            if !self.inner.has_room_to_claim() {
                self.inner.is_short_of_room.store(true, Relaxed);
                // Room that was made since then has woken nobody.
                if !self.inner.has_room_to_claim() {
                    return Ok(deps.config.poll_interval);
                }
            }
            let room = u32::try_from(lanes.room()).unwrap_or(u32::MAX);
            crash_point("claim.before");
            // Few events are as large as they may be; but those of a backlog may all be.
            let fitting = u32::try_from(2 * lanes.room_for_bytes() / deps.config.max_event).unwrap_or(u32::MAX);
            // Half of the room is for what has waited in flight since it was made.
            let limit = room.div_ceil(2).min(deps.config.batch_size).min(fitting.max(1));
            let Found { claimed, is_all } = deps.store.claim(&deps.lease, limit, room).await?;
            if !claimed.is_empty() {
                crash_point("claim.after");
            }
            self.take(claimed);
            if is_all {
                break;
            }
        }
        let next = deps.store.next_due().await?.unwrap_or(Duration::MAX);
        // Due now and yet not claimed: it came in the meantime, or someone else is just taking it.
        Ok(next.clamp(Duration::from_millis(20), deps.config.poll_interval))
    }

    /// What is parked may go as soon as this process knows that its subscription is on. What is parked all the same, because it
    /// was being written in that moment or because no worker was there, is found later.
    async fn resume(self) {
        let Inner { deps, tasks, .. } = &*self.inner;
        let mut tick = tokio::time::interval(REFRESH);
        let mut last_look: Option<Instant> = None;
        while tasks.stopping().run_until_cancelled(tick.tick()).await.is_some() {
            let mut switched_on = deps.catalog.take_switched_on();
            if last_look.is_none_or(|last| last.elapsed() >= RESCUE_EVERY) {
                last_look = Some(Instant::now());
                switched_on.extend(self.parked_though_on().await);
            }
            for key in switched_on {
                tasks.stopping().run_until_cancelled(self.resume_all(&key)).await;
            }
        }
    }

    async fn parked_though_on(&self) -> Vec<SubscriptionKey> {
        let parked = self.inner.deps.store.parked_though_on().await;
        parked.unwrap_or_else(|error| {
            tracing::warn!(error = %Chain(&error), "Parked deliveries could not be looked for; trying again.");
            Vec::new()
        })
    }

    async fn resume_all(&self, (tenant, subscription): &SubscriptionKey) {
        let mut after = String::new();
        loop {
            match self.inner.deps.store.resume(tenant, subscription, &after).await {
                Ok(Some(last)) => after = last,
                Ok(None) => return,
                Err(error) => {
                    return tracing::warn!(
                        %subscription, error = %Chain(&error),
                        "Parked deliveries were not resumed; trying again."
                    );
                }
            }
            self.inner.wake.notify_one();
            tokio::time::sleep(AIR).await;
        }
    }

    /// Deliveries that nobody would ever take, however they came to be so.
    async fn rescue(self) {
        let Inner { deps, tasks, wake, .. } = &*self.inner;
        let mut tick = tokio::time::interval(RESCUE_EVERY);
        while tasks.stopping().run_until_cancelled(tick.tick()).await.is_some() {
            match deps.store.rescue(LONGEST_LEASE).await {
                Ok(0) => (),
                Ok(rescued) => {
                    metrics::counter!(names::RESCUED).increment(rescued);
                    tracing::warn!(rescued, "Deliveries that nobody would have taken are due again.");
                    wake.notify_one();
                }
                Err(error) => tracing::warn!(error = %Chain(&error), "Stuck deliveries could not be looked for."),
            }
        }
    }

    async fn watch_lag(self) {
        let Inner { deps, tasks, .. } = &*self.inner;
        let mut tick = tokio::time::interval(LAG_EVERY);
        while tasks.stopping().run_until_cancelled(tick.tick()).await.is_some() {
            let (open, closed) = deps.catalog.circuits();
            metrics::gauge!(names::CIRCUITS, "state" => "open").set(open as f64);
            metrics::gauge!(names::CIRCUITS, "state" => "closed").set(closed as f64);
            if let Some(bytes) = deps.store.bytes_on_disk().await {
                metrics::gauge!(names::DATABASE_BYTES).set(bytes as f64);
            }
            match deps.store.lag().await {
                Ok(lag) => metrics::gauge!(names::LAG_SECONDS).set(lag.as_secs_f64()),
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "The age of the oldest delivery could not be read.")
                }
            }
        }
    }

    /// Gives back what was not begun, waits for calls in flight, and at the end gives back those too.
    async fn leave(&self) {
        let Inner { deps, lanes, tasks, .. } = &*self.inner;
        for job in lanes.give_up() {
            self.inner.give_back(&job);
        }
        tasks.ending().run_until_cancelled(lanes.drained()).await;
        if let Err(error) = deps.store.release(&deps.lease.owner).await {
            tracing::warn!(error = %Chain(&error), "Leases were not given back; they end by themselves.");
        }
    }
}

impl Inner {
    /// A claim costs the same for one as for hundreds, so it waits until it is worth it.
    fn has_room_to_claim(&self) -> bool {
        let most = self.deps.config.max_in_flight;
        self.lanes.room() >= (self.deps.config.batch_size as usize).min(most / 4).max(1)
    }

    /// A delivery has ended, so there may be room.
    fn made_room(&self) {
        if self.is_short_of_room.load(Relaxed) && self.has_room_to_claim() {
            self.is_short_of_room.store(false, Relaxed);
            self.wake.notify_one();
        }
    }
}
