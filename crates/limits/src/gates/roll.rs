//! Which targets are used: noted in the database now and then, so that they can be listed. Never waited for.

use std::time::Duration;

use moka::sync::Cache;
use platform::shutdown::Tasks;
use tokio::sync::mpsc;

use super::store::Store;
use crate::metrics::GATES_UNLISTED;

/// A use is written down at most this often per target and replica.
const EVERY: Duration = Duration::from_secs(3600);
/// Targets whose last note this process remembers.
const REMEMBERED: u64 = 100_000;
/// Notes that wait to be written.
const WAITING: usize = 4096;
const TOGETHER: usize = 256;
/// A target that was not used for so long, and has no policy, is no longer listed.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

#[derive(Clone)]
pub(super) struct Roll {
    noted: Cache<(String, String), ()>,
    notes: mpsc::Sender<(String, String)>,
}

impl Roll {
    pub(super) fn start(store: Store, tasks: &Tasks) -> Roll {
        let (notes, waiting) = mpsc::channel(WAITING);
        tasks.spawn("gate list", write(store, waiting, tasks.stopping().clone()));
        Roll { noted: Cache::builder().max_capacity(REMEMBERED).time_to_live(EVERY).build(), notes }
    }

    pub(super) fn note(&self, tenant: &str, target: &str) {
        let gate = (tenant.to_owned(), target.to_owned());
        if self.noted.contains_key(&gate) {
            return;
        }
        self.noted.insert(gate.clone(), ());
        if self.notes.try_send(gate).is_err() {
            // It is noted again when it is next used after the hour.
            metrics::counter!(GATES_UNLISTED).increment(1);
        }
    }
}

async fn write(
    store: Store,
    mut waiting: mpsc::Receiver<(String, String)>,
    stopping: tokio_util::sync::CancellationToken,
) {
    let mut upkeep = tokio::time::interval(EVERY);
    let mut gates = Vec::with_capacity(TOGETHER);
    loop {
        let done = tokio::select! {
            () = stopping.cancelled() => return,
            _ = upkeep.tick() => store.forget(KEPT).await,
            count = waiting.recv_many(&mut gates, TOGETHER) => {
                if count == 0 {
                    return;
                }
                let done = store.touch(&gates).await;
                gates.clear();
                done
            }
        };
        if let Err(error) = done {
            tracing::warn!(%error, "The list of gates could not be brought up to date.");
        }
    }
}
