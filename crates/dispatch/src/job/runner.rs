//! Claims jobs and works on them, batch by batch, beside the deliveries.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use platform::{db, problem::Chain, shutdown::Tasks};
use tokio::{
    sync::{Notify, Semaphore},
    time::Instant,
};

use super::{Counts, Kind, Progress, Selection, selection::Walk, sweep::Sweep};
use crate::{
    catalog::Catalog,
    error::Error,
    metrics as names,
    store::{
        Lease, Store,
        jobs::JobRow,
        sweep::{Changes, Held, OldEvent, Span},
    },
    worker::Worker,
};

/// Jobs that one process works on at a time.
const AT_ONCE: usize = 4;
/// One that takes longer lets jobs of other tenants go first, if some wait.
const TURN: Duration = Duration::from_secs(5);
/// Jobs that wait for their next turn and are remembered.
const MOST_KEPT: usize = 100;
/// Deliveries of one batch.
const BATCH: u32 = 500;
/// Events of one batch: they may be a mebibyte each.
const EVENT_BATCH: u32 = 50;
/// Between two batches, so that the database has time for others.
const PAUSE: Duration = Duration::from_millis(10);
/// So many batches in a row may fail by a fault of their own before the job does.
const PATIENCE: u32 = 10;

/// Works on jobs. Cheap to clone.
#[derive(Clone)]
pub struct Runner {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    catalog: Catalog,
    worker: Worker,
    lease: Lease,
    poll_interval: Duration,
    tasks: Tasks,
    wake: Notify,
    room: Arc<Semaphore>,
    /// Of jobs that let others go first: what they know of the slots they gave out.
    sweeps: Mutex<HashMap<String, Sweep>>,
}

/// What became of a batch.
enum Step {
    More,
    Done,
    /// It was cancelled, or its lease ended and another has it.
    Lost,
}

impl Runner {
    pub fn start(
        store: Store,
        catalog: Catalog,
        worker: Worker,
        lease: Lease,
        poll_interval: Duration,
        tasks: &Tasks,
    ) -> Self {
        let (wake, room) = (Notify::new(), Arc::new(Semaphore::new(AT_ONCE)));
        let (tasks, sweeps) = (tasks.clone(), Mutex::default());
        let inner = Inner { store, catalog, worker, lease, poll_interval, tasks, wake, room, sweeps };
        let runner = Runner { inner: Arc::new(inner) };
        runner.inner.tasks.spawn("jobs", runner.clone().poll());
        runner
    }

    /// A job was made: look now.
    pub fn wake(&self) {
        self.inner.wake.notify_one();
    }

    async fn poll(self) {
        let Inner { tasks, wake, poll_interval, .. } = &*self.inner;
        let stopping = tasks.stopping().clone();
        loop {
            if let Err(error) = self.claim_all().await {
                tracing::warn!(error = %Chain(&error), "Jobs could not be claimed; trying again.");
            }
            tokio::select! {
                () = stopping.cancelled() => return,
                () = wake.notified() => (),
                () = tokio::time::sleep(*poll_interval) => (),
            }
        }
    }

    async fn claim_all(&self) -> Result<(), db::Error> {
        let Inner { store, lease, tasks, room, .. } = &*self.inner;
        while let Ok(place) = Arc::clone(room).try_acquire_owned() {
            let Some(job) = store.claim_job(lease).await? else { return Ok(()) };
            let runner = self.clone();
            tasks.spawn("job", async move {
                runner.work(job).await;
                drop(place);
                // Another job of the tenant may have waited for this one.
                runner.wake();
            });
        }
        Ok(())
    }

    async fn work(&self, job: JobRow) {
        let Inner { store, lease, tasks, worker, .. } = &*self.inner;
        let held = Held { id: job.id.clone(), fence: job.fence, lease: lease.length };
        tracing::info!(job = job.id, kind = job.kind.as_str(), "A job is worked on.");
        let mut patience = Patience::default();
        let mut work = match Work::new(self, job, held.clone()) {
            Ok(work) => work,
            Err(error) => return self.fail(&held, &error).await,
        };
        let mut turn = Instant::now();
        loop {
            if tasks.stopping().is_cancelled() || self.is_over(&mut turn, &work.job.tenant).await {
                self.keep(&held.id, work.sweep);
                if let Err(error) = store.release_job(&held.id, held.fence).await {
                    tracing::warn!(error = %Chain(&error), "A job was not given back; its lease ends by itself.");
                }
                return;
            }
            match work.step().await {
                Ok(Step::More) => patience = Patience::default(),
                Ok(Step::Done) => {
                    worker.wake();
                    return tracing::info!(job = held.id, "A job is done.");
                }
                Ok(Step::Lost) => return tracing::info!(job = held.id, "A job was cancelled, or is another's now."),
                Err(error) => {
                    let Some(pause) = patience.after(error.is_transient()) else {
                        return self.fail(&held, &error).await;
                    };
                    tracing::warn!(job = held.id, error = %Chain(&error), "A batch of a job failed; trying again.");
                    tasks.stopping().run_until_cancelled(tokio::time::sleep(pause)).await;
                }
            }
            worker.wake();
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Is its turn over? It begins another if nobody waits.
    async fn is_over(&self, turn: &mut Instant, tenant: &str) -> bool {
        if turn.elapsed() < TURN {
            return false;
        }
        *turn = Instant::now();
        self.inner.store.do_others_wait(tenant).await.unwrap_or_else(|error| {
            tracing::warn!(error = %Chain(&error), "Whether other jobs wait could not be read.");
            false
        })
    }

    /// For when it goes on here.
    fn keep(&self, job: &str, sweep: Sweep) {
        let mut sweeps = self.inner.sweeps.lock();
        // Those that went on elsewhere are not missed.
        if sweeps.len() >= MOST_KEPT {
            sweeps.clear();
        }
        sweeps.insert(job.to_owned(), sweep);
    }

    async fn fail(&self, held: &Held, error: &Error) {
        let sentence = Chain(error).to_string();
        tracing::error!(job = held.id, error = sentence, "A job was given up.");
        if let Err(error) = self.inner.store.fail_job(&held.id, held.fence, &sentence).await {
            tracing::warn!(
                job = held.id, error = %Chain(&error),
                "A job's end was not written; it will be tried again."
            );
        }
    }
}

/// What a job bears with: batches that failed in a row. What passes by itself never ends it.
#[derive(Default)]
struct Patience {
    failures: u32,
    /// Those of them that would fail again.
    faults: u32,
}

impl Patience {
    /// The pause before the next try; `None` if the job is to be given up.
    fn after(&mut self, is_passing: bool) -> Option<Duration> {
        self.failures += 1;
        self.faults += u32::from(!is_passing);
        (self.faults <= PATIENCE).then(|| PAUSE * 2_u32.pow(self.failures.min(PATIENCE)))
    }
}

/// One job in the works.
struct Work<'a> {
    runner: &'a Runner,
    job: JobRow,
    held: Held,
    sweep: Sweep,
    walks: Vec<Walk>,
}

impl<'a> Work<'a> {
    fn new(runner: &'a Runner, job: JobRow, held: Held) -> Result<Self, Error> {
        let kept = runner.inner.sweeps.lock().remove(&job.id);
        let sweep = kept.map_or_else(|| Sweep::new(job.kind, job.selection.clone(), job.created_at), Ok)?;
        let walks = job.selection.walks(job.kind);
        Ok(Work { runner, job, held, sweep, walks })
    }

    /// One batch.
    async fn step(&mut self) -> Result<Step, Error> {
        let progress = self.job.progress.clone();
        let Some(walk) = self.walks.get(progress.walk).cloned() else {
            return self.commit(Changes::default(), progress, true).await;
        };
        let store = &self.runner.inner.store;
        // Whom it may be sent to is known as it is now.
        self.runner.inner.catalog.refresh().await?;
        let is_of_events = walk == Walk::Events;
        let span = self.span(&progress, if is_of_events { EVENT_BATCH } else { BATCH });
        let (changes, counts, seen) = if is_of_events {
            let events = store.look_at_events(&span, self.job.kind == Kind::Replay).await?;
            let seen: Vec<_> = events.iter().map(|event| (event.uid.clone(), event.created_at)).collect();
            let (changes, counts) = self.take_events(&events);
            (changes, counts, seen)
        } else {
            let named = self.job.selection.deliveries.clone().unwrap_or_default();
            let candidates = store.look_at_deliveries(&walk, &span, &named).await?;
            let seen: Vec<_> = candidates.iter().map(|one| (one.id.clone(), one.created_at)).collect();
            let (catalog, tenant) = (&self.runner.inner.catalog, self.job.tenant.clone());
            let find = |id: &str| catalog.endpoint(&tenant, id);
            let (changes, counts) = self.sweep.take_deliveries(&candidates, Instant::now(), find);
            (changes, counts, seen)
        };
        let is_walk_over = seen.len() < if is_of_events { EVENT_BATCH } else { BATCH } as usize;
        let mut next = moved(progress, &seen, is_walk_over);
        add(&mut next.counts, counts);
        let is_done = next.walk >= self.walks.len();
        let changes = if self.sweep.selection().dry_run { pretend(&mut next.counts, &changes) } else { changes };
        self.commit(changes, next, is_done).await
    }

    fn span<'s>(&'s self, progress: &'s Progress, limit: u32) -> Span<'s> {
        let Selection { since, until, .. } = self.job.selection;
        let until = until.map_or(self.job.created_at, |until| until.min(self.job.created_at));
        Span { tenant: &self.job.tenant, cursor: progress.cursor.as_deref(), since, until, limit }
    }

    fn take_events(&mut self, events: &[OldEvent]) -> (Changes, Counts) {
        let (catalog, tenant) = (&self.runner.inner.catalog, self.job.tenant.clone());
        self.sweep
            .take_events(events, Instant::now(), |event_type, document| catalog.wanted(&tenant, event_type, document))
    }

    async fn commit(&mut self, changes: Changes, progress: Progress, is_done: bool) -> Result<Step, Error> {
        let store = &self.runner.inner.store;
        let Some(progress) = store.commit_batch(&self.held, changes, progress, is_done).await? else {
            return Ok(Step::Lost);
        };
        let before = std::mem::replace(&mut self.job.progress, progress).counts;
        let now = self.job.progress.counts;
        if self.sweep.selection().dry_run {
            return Ok(if is_done { Step::Done } else { Step::More });
        }
        for (change, before, now) in [
            ("requeued", before.requeued, now.requeued),
            ("created", before.created, now.created),
            ("cancelled", before.cancelled, now.cancelled),
            ("deleted", before.deleted, now.deleted),
        ] {
            metrics::counter!(names::JOB_CHANGES, "change" => change).increment(now - before);
        }
        Ok(if is_done { Step::Done } else { Step::More })
    }
}

/// Behind what was seen, or at the beginning of the next walk.
fn moved(progress: Progress, seen: &[(String, time::OffsetDateTime)], is_walk_over: bool) -> Progress {
    if is_walk_over {
        return Progress { walk: progress.walk + 1, cursor: None, from: None, at: None, counts: progress.counts };
    }
    let from = progress.from.or(seen.first().map(|(_, at)| *at));
    let (cursor, at) = seen.last().cloned().unzip();
    Progress { cursor: cursor.or(progress.cursor), from, at, ..progress }
}

fn add(counts: &mut Counts, more: Counts) {
    counts.scanned += more.scanned;
    counts.skipped += more.skipped;
}

/// A dry run counts what it would change, and changes nothing. Of a delivery's event it cannot know whether it would go.
fn pretend(counts: &mut Counts, changes: &Changes) -> Changes {
    counts.requeued += changes.requeue.len() as u64;
    counts.created += changes.create.len() as u64;
    counts.cancelled += changes.cancel.len() as u64;
    counts.deleted += changes.delete.len() as u64;
    if changes.delete.is_empty() {
        counts.events_deleted += changes.bare_events.len() as u64;
    }
    Changes::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A database that was away for twenty seconds ended every job that ran, for good.
    #[test]
    fn what_passes_never_ends_a_job_and_faults_do() {
        let mut patience = Patience::default();
        let pauses: Vec<_> = (0..100).map(|_| patience.after(true)).collect();
        assert_eq!((pauses[0], pauses[99]), (Some(PAUSE * 2), Some(PAUSE * 1024)));
        let borne = (0..100).take_while(|_| patience.after(false).is_some()).count();
        assert_eq!(borne, PATIENCE as usize);
    }
}
