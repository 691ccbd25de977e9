//! Tracked tasks, and the three moments of leaving.
//!
//! *Leaving* turns readiness off while everything still serves, so that load balancers look elsewhere. *Stopping* is when
//! listeners stop accepting and workers stop claiming. *Ending* is when waiting for what is in flight ends. Every task is spawned here, so shutdown waits for all of them.

use std::{any::Any, future::Future, panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub const TASK_PANICS: &str = "tidegate_task_panics_total";

const LAST_MOMENT: Duration = Duration::from_secs(1);

/// Where tasks are spawned, and where they learn that the process ends. Cheap to clone.
#[derive(Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    leaving: CancellationToken,
    stopping: CancellationToken,
    ending: CancellationToken,
}

impl Tasks {
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `task` until it ends. A panic is logged and counted; it takes no other task with it.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(with_barrier(name, task));
    }

    /// Runs `task` for as long as the process lives; shutdown does not wait for it. For a loop that serves other tasks:
    /// whatever it does has a caller that is waited for.
    pub fn spawn_servant(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        #[expect(clippy::disallowed_methods, reason = "the one place that spawns without tracking, and says why")]
        tokio::spawn(with_barrier(name, task));
    }

    /// Cancelled from the first sign of shutdown: stop calling yourself ready.
    pub fn leaving(&self) -> &CancellationToken {
        &self.leaving
    }

    /// Cancelled when no new work may be taken: finish what is in flight.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    /// Cancelled when what is in flight is not waited for any longer: a moment is left to give back what is held.
    pub fn ending(&self) -> &CancellationToken {
        &self.ending
    }

    pub fn leave(&self) {
        self.leaving.cancel();
    }

    /// Stops new work and waits for every task; false if some were still running a moment after the deadline.
    pub async fn stop(&self, deadline: Duration) -> bool {
        self.leave();
        self.stopping.cancel();
        self.tracker.close();
        if tokio::time::timeout(deadline, self.tracker.wait()).await.is_ok() {
            return true;
        }
        self.ending.cancel();
        tokio::time::timeout(LAST_MOMENT, self.tracker.wait()).await.is_ok()
    }
}

async fn with_barrier(name: &'static str, task: impl Future<Output = ()> + Send) {
    if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
        metrics::counter!(TASK_PANICS, "task" => name).increment(1);
        tracing::error!(task = name, panic = panic_text(&*panic), "A task panicked.");
    }
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("not a text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stop_waits_for_a_task_that_finishes_its_work() {
        let tasks = Tasks::new();
        let (done, finished) = tokio::sync::oneshot::channel();
        let stopping = tasks.stopping().clone();
        tasks.spawn("worker", async move {
            stopping.cancelled().await;
            done.send(()).unwrap();
        });
        assert!(tasks.stop(Duration::from_secs(5)).await);
        finished.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn stop_gives_up_on_a_task_that_never_ends() {
        let tasks = Tasks::new();
        tasks.spawn("stuck", std::future::pending());
        assert!(!tasks.stop(Duration::from_secs(5)).await);
    }

    #[tokio::test]
    async fn a_panic_ends_its_task_alone() {
        let tasks = Tasks::new();
        tasks.spawn("broken", async { panic!("on purpose") });
        assert!(tasks.stop(Duration::from_secs(5)).await);
    }
}
