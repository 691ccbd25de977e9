//! What the gate needs of a semaphore: a permit that a larger script took, and its return in a larger script.

use std::sync::Arc;
use std::time::Duration;

use super::keeper::Held;
use super::permits::Check;
use super::{Acquired, Permit, Semaphore};
use crate::{Holder, Key};

impl Semaphore {
    /// A permit that Redis gave to `holder` in answer to a question sent at `asked_us`.
    pub(crate) fn permit_from(&self, key: &Key, holder: Holder, asked_us: u64) -> Acquired {
        self.answer(key, holder, Check::Pass, true, asked_us)
    }

    /// Without Redis, under an id that Redis never heard: one it may have heard is being given back there.
    pub(crate) fn acquire_without_redis(&self, key: &Key) -> Acquired {
        let holder = Holder::random();
        let share = match &self.inner.shared {
            Some(_) => self.policy.share(self.inner.fallback.replicas()),
            None => self.policy,
        };
        let now_us = self.inner.clock.now_us();
        let check = self.inner.local.acquire(key, &share, holder, now_us);
        self.answer(key, holder, check, false, now_us)
    }

    /// While traffic returns to Redis, Redis and the shares give places beside each other. So a holder takes its place in the
    /// share before Redis is asked, and a share that is full refuses until about then. True: it has one, to be freed if
    /// Redis gives none.
    pub(crate) fn hold_share(&self, key: &Key, holder: Holder) -> Result<bool, Duration> {
        if !self.inner.fallback.is_returning() {
            return Ok(false);
        }
        let (share, now_us) = (self.policy.share(self.inner.fallback.replicas()), self.inner.clock.now_us());
        match self.inner.local.acquire(key, &share, holder, now_us) {
            Check::Pass => Ok(true),
            Check::Full { retry_after_us } => Err(Duration::from_micros(retry_after_us)),
        }
    }

    /// Gives the permit back here; `Some` says that Redis must hear of it.
    pub(crate) fn give_back_here(&self, permit: Permit) -> Option<Holder> {
        let held = permit.into_held();
        self.let_go(&held);
        held.is_by_redis().then_some(held.holder)
    }

    /// The permit lives on without this process: nothing renews it. Its holder, and whether Redis gave it.
    pub(crate) fn stop_keeping(&self, permit: Permit) -> (Holder, bool) {
        let held = permit.into_held();
        self.inner.keeper.forget(held.holder);
        (held.holder, held.is_by_redis())
    }

    /// Forgets a holder in this process; was it known here?
    pub(crate) fn release_here(&self, key: &Key, holder: Holder) -> bool {
        self.inner.local.release(key, holder, self.inner.clock.now_us())
    }

    /// Renews the lease of a holder that nobody keeps. False: it is lost, or Redis did not say.
    pub(crate) async fn renew_holder(&self, key: &Key, holder: Holder, is_by_redis: bool) -> bool {
        let now_us = self.inner.clock.now_us();
        match &self.inner.shared {
            Some(shared) if is_by_redis => {
                let renewal = shared.renew(key, &self.policy, holder);
                self.inner.fallback.attempt("semaphore_renew", renewal).await.unwrap_or(false)
            }
            _ => self.inner.local.renew(key, &self.policy, holder, now_us),
        }
    }

    /// Whoever waits for this key in this process may look again.
    pub(crate) fn wake(&self, key: &Key) {
        self.inner.queues.wake(key);
    }
}

impl Permit {
    fn into_held(mut self) -> Arc<Held> {
        self.held.take().expect("a permit holds until it is consumed")
    }
}
