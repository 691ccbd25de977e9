//! Background tasks of one backend: tracked, cancelled together, awaited at shutdown.

use std::future::Future;
use std::time::Duration;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

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

    /// Runs a short task to its end, also when its caller goes away meanwhile. One that ends at once, as in memory, is not
    /// worth spawning.
    pub(crate) async fn run_to_end(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut task = Box::pin(task);
        if task.as_mut().now_or_never().is_none() {
            // A task that panicked has already said so.
            self.tracker.spawn(task).await.ok();
        }
    }

    pub(crate) async fn shutdown(&self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}
