//! The leases of what runners have in hand, until their outcomes are written. A call may take longer than its lease, and the
//! database longer still to take the outcome: all that time nobody else makes the call.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use hashbrown::HashMap;
use parking_lot::Mutex;
use platform::problem::Chain;
use tokio::time::Instant;

use super::Job;
use crate::store::{Lease, Store};

/// Renewed in one statement.
const AT_ONCE: usize = 1000;

#[derive(Default)]
pub(super) struct Leases {
    held: Mutex<HashMap<u64, Held>>,
    last: AtomicU64,
}

struct Held {
    delivery: String,
    fence: i64,
    /// When its lease began.
    since: Instant,
}

/// One lease; not renewed any more when dropped.
pub(super) struct Kept {
    leases: Arc<Leases>,
    number: u64,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.leases.held.lock().remove(&self.number);
    }
}

impl Leases {
    pub(super) fn keep(self: &Arc<Self>, job: &Job) -> Kept {
        let number = self.last.fetch_add(1, Relaxed);
        let held = Held { delivery: job.delivery.id.clone(), fence: job.delivery.fence, since: job.claimed_at };
        self.held.lock().insert(number, held);
        Kept { leases: Arc::clone(self), number }
    }

    /// Renews each lease when half of it is over. What could not be renewed is tried again at the next look.
    pub(super) async fn renew(self: Arc<Self>, store: Store, Lease { owner, length }: Lease) {
        loop {
            tokio::time::sleep(length / 10).await;
            let now = Instant::now();
            let old = self.older_than(now, length / 2);
            for old in old.chunks(AT_ONCE) {
                let held = old.iter().map(|(_, delivery, fence)| (delivery.clone(), *fence)).collect();
                match store.renew(&owner, held, length).await {
                    Ok(()) => self.begin_anew(old.iter().map(|(number, ..)| *number), now),
                    Err(error) => tracing::warn!(
                        leases = old.len(), error = %Chain(&error),
                        "Leases were not renewed; trying again."
                    ),
                }
            }
        }
    }

    fn older_than(&self, now: Instant, age: Duration) -> Vec<(u64, String, i64)> {
        let held = self.held.lock();
        let old = held.iter().filter(|(_, held)| now.saturating_duration_since(held.since) >= age);
        let mut old: Vec<_> = old.map(|(number, held)| (*number, held.delivery.clone(), held.fence)).collect();
        // As outcomes are written: two that write the same rows must not wait for each other.
        old.sort_unstable_by(|a, b| a.1.cmp(&b.1));
        old
    }

    fn begin_anew(&self, numbers: impl Iterator<Item = u64>, now: Instant) {
        let mut held = self.held.lock();
        for number in numbers {
            if let Some(held) = held.get_mut(&number) {
                held.since = now;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::lane::Lanes, *};
    use crate::store::tests::{MINUTE, claim, event, open, take_in};

    #[tokio::test]
    async fn a_lease_is_old_at_half_its_length_until_it_is_renewed_or_let_go() {
        let folder = tempfile::tempdir().unwrap();
        let store = open("", folder.path()).await;
        take_in(&store, vec![event("a", 1)]).await;
        let (leases, claimed_at) = (Arc::<Leases>::default(), Instant::now());
        let job = Lanes::new(1).job(claim(&store, "w").await.remove(0), claimed_at);
        let kept = leases.keep(&job);
        let old = |after: Duration| leases.older_than(claimed_at + after, MINUTE / 2);
        assert!(old(MINUTE / 2 - Duration::from_millis(1)).is_empty());
        let (number, delivery, fence) = old(MINUTE / 2).remove(0);
        assert_eq!((delivery.as_str(), fence), (job.delivery.id.as_str(), 1));
        leases.begin_anew([number].into_iter(), claimed_at + MINUTE / 2);
        assert!(old(MINUTE / 2).is_empty());
        assert_eq!(old(MINUTE).len(), 1);
        drop(kept);
        assert!(old(MINUTE).is_empty());
    }
}
