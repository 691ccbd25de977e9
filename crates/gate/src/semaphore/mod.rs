//! Semaphore: at most `n` holders of a key across the fleet.
//!
//! A permit is a lease. It ends by itself, so a crashed holder cannot leak it; while it is held a background task renews
//! it at a third of its length, and a holder whose lease was lost is told so ([`Permit::lost`]). Releasing twice, or late,
//! frees nobody else's permit. Waiting is in turn within a process, by polling with jitter between processes.
//!
//! # Without Redis
//! Each process admits `n / live replicas`, at least one, counting what it already holds: the fleet may briefly hold
//! fewer or more than `n`. Permits given meanwhile are counted in Redis when it is back. A Redis that evicts keys when it
//! is full could forget holders, so it is not asked either: see [`Fallback::may_evict`].

mod join;
mod keeper;
mod memory;
mod permit;
mod permits;
mod policy;
mod queue;
mod redis;
mod unheard;

#[cfg(test)]
mod equivalence;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore as Places;
use tokio::time::{Instant, sleep, timeout};

pub use self::permit::Permit;
pub use self::policy::Policy;
pub(crate) use self::redis::KIND;
pub(crate) use self::unheard::Unheard;

use self::keeper::{Held, Keeper};
use self::memory::MemorySemaphore;
use self::permits::Check;
use self::queue::Queues;
use self::redis::RedisSemaphore;
use self::unheard::MOST_OWED;
use crate::backend::MOST_LOCAL_KEYS;
use crate::fallback::Fallback;
use crate::tasks::Tasks;
use crate::{Backend, Clock, Holder, Key};

const SHORTEST_POLL: Duration = Duration::from_millis(2);
const LONGEST_POLL: Duration = Duration::from_millis(50);

/// Is there a permit?
#[derive(Debug)]
pub enum Acquired {
    /// Yes; it is given back when it is dropped.
    Permit(Permit),
    /// No: all are held.
    Full {
        /// When the first one ends by itself; it may be given back sooner.
        retry_after: Duration,
        /// Decided without Redis.
        degraded: bool,
    },
}

/// Redis counts for the fleet; while it cannot, this process counts its share. Cheap to clone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), gate::Error> {
/// use std::time::Duration;
///
/// use gate::semaphore::{Acquired, Policy, Semaphore};
/// use gate::{Backend, Key};
///
/// let semaphore = Semaphore::new(&Backend::memory(), Policy::new(1, Duration::from_secs(30))?);
/// let key = Key::new("report generator")?;
/// let Acquired::Permit(permit) = semaphore.try_acquire(&key).await else { panic!("nobody else is here") };
/// assert!(matches!(semaphore.acquire(&key, Duration::from_millis(10)).await, Acquired::Full { .. }));
/// assert!(permit.release().await);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Semaphore {
    inner: Arc<Inner>,
    policy: Policy,
}

struct Inner {
    shared: Option<RedisSemaphore>,
    /// Everything this process holds, whoever gave it.
    local: MemorySemaphore,
    fallback: Fallback,
    clock: Clock,
    tasks: Tasks,
    queues: Queues,
    keeper: Keeper,
    /// For permits that Redis has yet to take back.
    owed: Arc<Places>,
}

impl Semaphore {
    /// A semaphore whose permits live where the backend says.
    #[must_use]
    pub fn new(backend: &Backend, policy: Policy) -> Self {
        let inner = Inner {
            shared: backend.shared.clone().map(RedisSemaphore::new),
            local: MemorySemaphore::new(MOST_LOCAL_KEYS),
            fallback: backend.fallback.clone(),
            clock: backend.clock.clone(),
            tasks: backend.tasks.clone(),
            queues: Queues::default(),
            keeper: Keeper::default(),
            owed: Arc::new(Places::new(MOST_OWED)),
        };
        Semaphore { inner: Arc::new(inner), policy }
    }

    /// The same permits under another limit or lease.
    #[must_use]
    pub fn with_policy(&self, policy: Policy) -> Self {
        Semaphore { inner: Arc::clone(&self.inner), policy }
    }

    /// Takes a permit if one is free.
    pub async fn try_acquire(&self, key: &Key) -> Acquired {
        if let Some(shared) = &self.inner.shared
            && !self.inner.fallback.may_evict()
        {
            let (holder, now_us) = (Holder::random(), self.inner.clock.now_us());
            let is_held = match self.hold_share(key, holder) {
                Ok(is_held) => is_held,
                Err(retry_after) => return Acquired::Full { retry_after, degraded: true },
            };
            let mut unheard = Unheard::new(self, key, holder);
            let question = unheard.until_heard(shared.acquire(key, &self.policy, holder));
            let asked = self.inner.fallback.attempt("semaphore_acquire", question).await;
            drop(unheard);
            if is_held && asked != Some(Check::Pass) {
                self.release_here(key, holder);
            }
            if let Some(check) = asked {
                return self.answer(key, holder, check, true, now_us);
            }
        }
        self.acquire_without_redis(key)
    }

    /// Waits for a permit, at most this long. Dropping the future is safe.
    pub async fn acquire(&self, key: &Key, within: Duration) -> Acquired {
        let began = Instant::now();
        let queue = match self.inner.queues.find(key) {
            Some(queue) => queue,
            None => match self.try_acquire(key).await {
                Acquired::Full { .. } => self.inner.queues.join(key),
                permit @ Acquired::Permit(_) => return permit,
            },
        };
        let mut last = Acquired::Full { retry_after: Duration::ZERO, degraded: false };
        let waiting = async {
            let _turn = queue.turn().await;
            let mut poll = SHORTEST_POLL;
            loop {
                let freed = queue.freed();
                last = self.try_acquire(key).await;
                if let Acquired::Permit(_) = last {
                    return;
                }
                tokio::select! {
                    () = freed => (),
                    () = sleep(poll.mul_f64(0.5 + fastrand::f64())) => poll = (poll * 2).min(LONGEST_POLL),
                }
            }
        };
        // Whether in time or not, the last answer stands.
        timeout(within.saturating_sub(began.elapsed()), waiting).await.ok();
        last
    }

    /// How many permits are held, in the fleet or, without Redis, in this process.
    pub async fn held(&self, key: &Key) -> u32 {
        if let Some(shared) = &self.inner.shared
            && let Some(held) = self.inner.fallback.attempt("semaphore_held", shared.held(key)).await
        {
            return held;
        }
        self.inner.local.held(key, self.inner.clock.now_us())
    }

    fn answer(&self, key: &Key, holder: Holder, check: Check, by_redis: bool, now_us: u64) -> Acquired {
        let degraded = self.inner.shared.is_some() && !by_redis;
        match check {
            Check::Full { retry_after_us } => {
                Acquired::Full { retry_after: Duration::from_micros(retry_after_us), degraded }
            }
            Check::Pass => {
                if by_redis {
                    self.inner.local.mirror(key, &self.policy, holder, now_us);
                }
                let held = Arc::new(Held::new(key.clone(), holder, self.policy, by_redis, now_us));
                Inner::keep(&self.inner, Arc::clone(&held));
                Acquired::Permit(Permit::new(self.clone(), held, degraded))
            }
        }
    }

    /// Gives a permit back to whoever gave it, and wakes who waits here. False: it was gone already.
    async fn give_back(&self, held: &Held) -> bool {
        let was_held = self.let_go(held);
        let was_held = match &self.inner.shared {
            Some(shared) if held.is_by_redis() => {
                let release = shared.release(&held.key, held.holder);
                let heard = self.inner.fallback.attempt("semaphore_release", release).await;
                heard.unwrap_or_else(|| {
                    self.take_back(&held.key, held.holder);
                    was_held
                })
            }
            _ => was_held,
        };
        self.inner.queues.wake(&held.key);
        was_held
    }

    /// The part that needs no runtime: nobody renews the permit any more, and this process does not count it.
    fn let_go(&self, held: &Held) -> bool {
        held.set_given_back();
        self.inner.keeper.forget(held.holder);
        self.inner.local.release(&held.key, held.holder, self.inner.clock.now_us())
    }

    /// Here at once; in Redis by a task that runs to its end, or, outside a runtime, when the lease ends.
    fn give_back_later(&self, held: Arc<Held>) {
        self.let_go(&held);
        if held.is_by_redis() && Handle::try_current().is_ok() {
            let semaphore = self.clone();
            self.inner.tasks.spawn_draining(async move {
                semaphore.give_back(&held).await;
            });
        } else {
            self.inner.queues.wake(&held.key);
        }
    }
}

impl std::fmt::Debug for Semaphore {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Semaphore").field("policy", &self.policy).finish_non_exhaustive()
    }
}
