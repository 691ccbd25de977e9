//! The keeper renews what this process holds, and tells a holder when its lease is lost.
//!
//! One task per semaphore, and only while something is held. It renews at a third of the lease, so two renewals may fail
//! before a lease ends. A lease counts from before the question was sent: the holder never believes longer than Redis.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::redis::RedisSemaphore;
use super::{Inner, Policy, Semaphore};
use crate::metrics::PERMITS_LOST;
use crate::{Clock, Holder, Key};

/// One permit of this process.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) key: Key,
    pub(super) holder: Holder,
    policy: Policy,
    by_redis: AtomicBool,
    /// The time up to which the lease is known to be counted from.
    renewed_us: AtomicU64,
    tried_us: AtomicU64,
    pub(super) lost: CancellationToken,
    /// Set before the permit is given back: a renewal on its way then means nothing.
    given_back: AtomicBool,
}

impl Held {
    pub(super) fn new(key: Key, holder: Holder, policy: Policy, by_redis: bool, now_us: u64) -> Self {
        Held {
            key,
            holder,
            policy,
            by_redis: AtomicBool::new(by_redis),
            renewed_us: AtomicU64::new(now_us),
            tried_us: AtomicU64::new(now_us),
            lost: CancellationToken::new(),
            given_back: AtomicBool::new(false),
        }
    }

    pub(super) fn is_by_redis(&self) -> bool {
        self.by_redis.load(Ordering::Acquire)
    }

    pub(super) fn set_given_back(&self) {
        self.given_back.store(true, Ordering::Release);
    }

    fn is_given_back(&self) -> bool {
        self.given_back.load(Ordering::Acquire)
    }

    /// A third of the lease after the last try, and no later than the lease ends.
    fn due_us(&self) -> u64 {
        let next_us = self.tried_us.load(Ordering::Acquire) + self.policy.lease_us / 3;
        next_us.min(self.renewed_us.load(Ordering::Acquire) + self.policy.lease_us)
    }

    fn is_over(&self, now_us: u64) -> bool {
        now_us >= self.renewed_us.load(Ordering::Acquire) + self.policy.lease_us
    }
}

#[derive(Default)]
pub(super) struct Keeper {
    book: Mutex<Book>,
    /// Something with a shorter lease came in.
    sooner: Notify,
}

#[derive(Default)]
struct Book {
    permits: HashMap<Holder, Arc<Held>>,
    /// When the keeper wakes next; `None` while it does not run.
    wakes_us: Option<u64>,
}

impl Keeper {
    pub(super) fn forget(&self, holder: Holder) {
        self.book.lock().permits.remove(&holder);
    }

    /// How long until something is due; `None` ends the keeper.
    fn next(&self, now_us: u64) -> Option<Duration> {
        let mut book = self.book.lock();
        book.wakes_us = book.permits.values().map(|held| held.due_us()).min();
        book.wakes_us.map(|wakes_us| Duration::from_micros(wakes_us.saturating_sub(now_us)))
    }

    /// What is due, and what is nearly: waking once for many is cheaper.
    fn due(&self, now_us: u64) -> Vec<Arc<Held>> {
        let is_due = |held: &Arc<Held>| held.due_us() <= now_us + held.policy.lease_us / 12;
        self.book.lock().permits.values().filter(|held| is_due(held)).cloned().collect()
    }
}

impl Inner {
    pub(super) fn keep(inner: &Arc<Inner>, held: Arc<Held>) {
        // A manual clock does not move while a task sleeps; its owner renews by hand.
        if matches!(inner.clock, Clock::Manual(_)) {
            return;
        }
        let (policy, due_us) = (held.policy, held.due_us());
        let mut book = inner.keeper.book.lock();
        book.permits.insert(held.holder, held);
        match book.wakes_us {
            Some(wakes_us) if wakes_us <= due_us => (),
            Some(_) => inner.keeper.sooner.notify_one(),
            None => {
                book.wakes_us = Some(due_us);
                inner.tasks.spawn(run(Semaphore { inner: Arc::clone(inner), policy }));
            }
        }
    }
}

async fn run(semaphore: Semaphore) {
    let inner = &semaphore.inner;
    while let Some(pause) = inner.keeper.next(inner.clock.now_us()) {
        tokio::select! {
            () = sleep(pause) => (),
            () = inner.keeper.sooner.notified() => continue,
        }
        let due = inner.keeper.due(inner.clock.now_us());
        join_all(due.iter().map(|held| semaphore.renew(held))).await;
    }
}

impl Semaphore {
    /// False: the lease is lost, and its holder is told. An unknown answer is not yet a loss.
    pub(super) async fn renew(&self, held: &Held) -> bool {
        let started_us = self.inner.clock.now_us();
        held.tried_us.store(started_us, Ordering::Release);
        let renewed = match &self.inner.shared {
            Some(shared) if held.is_by_redis() => {
                let renewal = shared.renew(&held.key, &held.policy, held.holder);
                let renewed = self.inner.fallback.attempt("semaphore_renew", renewal).await;
                if renewed == Some(true) && !held.is_given_back() {
                    self.inner.local.mirror(&held.key, &held.policy, held.holder, started_us);
                }
                renewed
            }
            Some(shared) => {
                let is_held = self.inner.local.renew(&held.key, &held.policy, held.holder, started_us);
                if is_held && !self.inner.fallback.may_evict() {
                    self.adopt(shared, held).await;
                }
                Some(is_held)
            }
            None => Some(self.inner.local.renew(&held.key, &held.policy, held.holder, started_us)),
        };
        if renewed == Some(true) {
            held.renewed_us.store(started_us, Ordering::Release);
            return true;
        }
        if held.is_given_back() {
            return false;
        }
        if renewed.is_none() && !held.is_over(self.inner.clock.now_us()) {
            return true;
        }
        metrics::counter!(PERMITS_LOST).increment(1);
        warn!(key = %held.key, holder = %held.holder, "A permit's lease was lost while it was held.");
        self.inner.keeper.forget(held.holder);
        held.lost.cancel();
        false
    }

    /// Redis is back: from now on it counts this permit too, and releases it.
    async fn adopt(&self, shared: &RedisSemaphore, held: &Held) {
        let adoption = shared.adopt(&held.key, &held.policy, held.holder);
        if self.inner.fallback.attempt("semaphore_adopt", adoption).await.is_none() {
            return;
        }
        held.by_redis.store(true, Ordering::Release);
        if held.is_given_back() {
            let release = shared.release(&held.key, held.holder);
            self.inner.fallback.attempt("semaphore_release", release).await;
        }
    }
}
