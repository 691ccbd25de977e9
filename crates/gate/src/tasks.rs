//! Background tasks of one backend: tracked, cancelled together, awaited at shutdown.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

#[derive(Clone, Debug, Default)]
pub(crate) struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    /// Runs `task` until it ends or the backend shuts down.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tracker.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => (),
                () = task => (),
            }
        });
    }

    /// Runs a task that ends by itself soon, whatever else happens.
    pub(crate) fn spawn_draining(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(task);
    }

    /// Runs `task` until it ends, or this long after the backend shuts down.
    pub(crate) fn spawn_lingering(&self, linger: Duration, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tracker.spawn(async move {
            let over = async {
                stop.cancelled().await;
                tokio::time::sleep(linger).await;
            };
            tokio::select! {
                () = over => (),
                () = task => (),
            }
        });
    }

    /// Runs a short task to its end: within its caller, and on its own if that goes away meanwhile.
    pub(crate) fn run_to_end(&self, task: BoxFuture<'static, ()>) -> ToEnd {
        ToEnd { tasks: self.clone(), task: Some(task), _tracked: self.tracker.token() }
    }

    pub(crate) async fn shutdown(&self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

/// See [`Tasks::run_to_end`].
pub(crate) struct ToEnd {
    tasks: Tasks,
    task: Option<BoxFuture<'static, ()>>,
    /// Shutdown waits for it.
    _tracked: TaskTrackerToken,
}

impl Future for ToEnd {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(mut task) = self.task.take() else { return Poll::Ready(()) };
        // A panic has already said so, and is none of the caller's.
        match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context))) {
            Ok(Poll::Pending) => {
                self.task = Some(task);
                Poll::Pending
            }
            Ok(Poll::Ready(())) | Err(_) => Poll::Ready(()),
        }
    }
}

impl Drop for ToEnd {
    fn drop(&mut self) {
        // Outside a runtime nothing can go on.
        if let Some(task) = self.task.take()
            && Handle::try_current().is_ok()
        {
            self.tasks.spawn_draining(task);
        }
    }
}
