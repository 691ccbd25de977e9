//! Who waits for a key in this process: one at a time asks, the others stand in line.
//!
//! A queue exists while somebody waits. `freed` is asked for before the permit is, so that a release between the two is
//! not missed; a release with nobody listening is remembered by `Notify`.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{MutexGuard, Notify};

use crate::Key;

#[derive(Clone, Default)]
pub(super) struct Queues {
    keys: Arc<Mutex<HashMap<Key, Line>>>,
}

#[derive(Default)]
struct Line {
    queue: Arc<Queue>,
    waiting: usize,
}

#[derive(Default)]
struct Queue {
    turn: tokio::sync::Mutex<()>,
    freed: Notify,
}

/// A place in the line of one key.
pub(super) struct Place {
    queues: Queues,
    key: Key,
    queue: Arc<Queue>,
}

impl Queues {
    /// A place in the line, if there is one: a newcomer does not overtake those who wait.
    pub(super) fn find(&self, key: &Key) -> Option<Place> {
        let is_waited_for = self.keys.lock().contains_key(key);
        is_waited_for.then(|| self.join(key))
    }

    pub(super) fn join(&self, key: &Key) -> Place {
        let mut keys = self.keys.lock();
        let line = keys.entry(key.clone()).or_default();
        line.waiting += 1;
        Place { queues: self.clone(), key: key.clone(), queue: Arc::clone(&line.queue) }
    }

    pub(super) fn wake(&self, key: &Key) {
        if let Some(line) = self.keys.lock().get(key) {
            line.queue.freed.notify_one();
        }
    }
}

impl Place {
    /// First come, first served.
    pub(super) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.queue.turn.lock().await
    }

    pub(super) fn freed(&self) -> impl Future<Output = ()> {
        self.queue.freed.notified()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut keys = self.queues.keys.lock();
        if let Some(line) = keys.get_mut(&self.key) {
            line.waiting -= 1;
            if line.waiting == 0 {
                keys.remove(&self.key);
            }
        }
    }
}
