//! Tells the other processes that deliveries wait, so that they look at once and not at their next poll.
//!
//! On PostgreSQL by `NOTIFY`, after the commit and at most every few milliseconds; SQLite has one process. A lost
//! announcement costs a poll's wait and nothing else.

use std::{sync::Arc, time::Duration};

use platform::{db::postgres::Postgres, problem::Chain, shutdown::Tasks};
use tokio::sync::Notify;

use crate::{place::Place, store::Claimed, worker::Worker};

const CHANNEL: &str = "tidegate_due";
/// What comes within this time is announced together.
const BREATH: Duration = Duration::from_millis(5);
const RETRY: Duration = Duration::from_secs(1);

/// Whoever may deliver: the worker in this process, if it is one, and those of others. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Workers {
    pub(crate) here: Option<Worker>,
    pub(crate) elsewhere: Announcer,
}

impl Workers {
    /// Room for one fresh delivery here, which may then be born leased to this process.
    pub(crate) fn promise(&self, tenant: &str) -> Option<Place> {
        self.here.as_ref()?.promise(tenant)
    }

    /// Waits for room here for so many, while there is hope that it is made within `patience`.
    pub(crate) async fn wait_for_room(&self, count: usize, patience: Duration) {
        if let Some(worker) = &self.here {
            worker.wait_for_room(count, patience).await;
        }
    }

    /// Waits until little is ahead of what comes next here.
    #[cfg_attr(not(feature = "kafka"), expect(dead_code, reason = "who reads from a topic need not read on"))]
    pub(crate) async fn wait_for_lull(&self) {
        if let Some(worker) = &self.here {
            worker.wait_for_lull().await;
        }
    }

    /// Fresh deliveries are on disk: those that are leased to this process, and perhaps others that wait for anyone.
    pub(crate) fn hand_over(&self, leased: Vec<Claimed>, do_others_wait: bool) {
        if let Some(worker) = &self.here {
            worker.take(leased);
            if do_others_wait {
                worker.wake();
            }
        }
        if do_others_wait {
            self.elsewhere.announce();
        }
    }
}

/// Cheap to clone. Silent where there is nobody to tell.
#[derive(Clone, Default)]
pub(crate) struct Announcer {
    news: Option<Arc<Notify>>,
}

impl Announcer {
    pub(crate) fn start(postgres: Option<Postgres>, tasks: &Tasks) -> Self {
        let Some(postgres) = postgres else { return Announcer::default() };
        let news = Arc::new(Notify::new());
        let (heard, stopping) = (Arc::clone(&news), tasks.stopping().clone());
        tasks.spawn("announcer", async move {
            while stopping.run_until_cancelled(heard.notified()).await.is_some() {
                if let Err(error) = notify(&postgres).await {
                    tracing::debug!(
                        error = %Chain(&error),
                        "Waiting deliveries were not announced; they are found at the next poll."
                    );
                }
                tokio::time::sleep(BREATH).await;
            }
        });
        Announcer { news: Some(news) }
    }

    pub(crate) fn announce(&self) {
        if let Some(news) = &self.news {
            news.notify_one();
        }
    }
}

async fn notify(postgres: &Postgres) -> Result<(), platform::db::Error> {
    Ok(postgres.client().await?.batch_execute(&format!("NOTIFY {CHANNEL}")).await?)
}

/// Wakes the worker when another process announces something.
pub(crate) fn listen(postgres: Option<Postgres>, worker: Worker, tasks: &Tasks) {
    let (Some(postgres), stopping) = (postgres, tasks.stopping().clone()) else { return };
    tasks.spawn("announcements", async move {
        let listening = async {
            loop {
                if let Err(error) = hear(&postgres, &worker).await {
                    tracing::debug!(error = %Chain(&error), "Announcements are not heard; listening again.");
                }
                tokio::time::sleep(RETRY).await;
            }
        };
        stopping.run_until_cancelled(listening).await;
    });
}

async fn hear(postgres: &Postgres, worker: &Worker) -> Result<(), platform::db::Error> {
    let mut listener = postgres.listen(CHANNEL).await?;
    loop {
        // Also once before the first: something may have come while nobody listened.
        worker.wake();
        listener.next().await?;
    }
}
