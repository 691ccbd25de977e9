//! Once: one caller does a named piece of work, and the others learn its result.
//!
//! A name is claimed for a time, then done with a result that is kept for a time, or free again. The owner of a claim is
//! a random token, so nobody completes another's work. The fence grows with every claim of a name, also after the record
//! expired: whoever writes somewhere else passes it on, and the writer with the smaller fence is refused there.
//!
//! The promise is *at least once, with a window in which repeats are seen*: work that outlives its claim may run twice.
//!
//! # Without Redis
//! Names are claimed in this process only: each process may do the work once. Pass the fence on.

mod claim;
mod memory;
mod redis;

#[cfg(test)]
mod equivalence;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;

use self::claim::Answer;
use self::memory::MemoryOnce;
use self::redis::RedisOnce;
use crate::backend::MOST_LOCAL_KEYS;
use crate::clock::micros;
use crate::fallback::Fallback;
use crate::tasks::Tasks;
use crate::{Backend, Clock, Error, Holder, Key};

/// How long a claim and a result last. Checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    lease_us: u64,
    keep_us: u64,
}

impl Policy {
    const LONGEST: Duration = Duration::from_hours(24 * 400);

    /// A claim ends after `lease` unless it is renewed; a result is kept for `keep`.
    ///
    /// # Errors
    /// A time under a millisecond or over 400 days.
    pub fn new(lease: Duration, keep: Duration) -> Result<Self, Error> {
        for (field, value) in [("lease", lease), ("keep", keep)] {
            if value < Duration::from_millis(1) {
                return Err(Error::Policy { field, problem: "must be at least 1ms" });
            }
            if value > Policy::LONGEST {
                return Err(Error::Policy { field, problem: "may be at most 400 days" });
            }
        }
        Ok(Policy { lease_us: micros(lease), keep_us: micros(keep) })
    }
}

/// What became of a claim.
#[derive(Debug)]
pub enum Claimed {
    /// The name is the caller's: do the work.
    Won(Claim),
    /// Somebody else is at it; the claim ends after this time at the latest.
    InProgress { retry_after: Duration, degraded: bool },
    /// It was done, with this result.
    Done { result: Bytes, degraded: bool },
}

/// Redis decides for the fleet; while it cannot, this process decides for itself. Cheap to clone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), gate::Error> {
/// use std::time::Duration;
///
/// use gate::once::{Claimed, Once, Policy};
/// use gate::{Backend, Key};
///
/// let once = Once::new(&Backend::memory(), Policy::new(Duration::from_secs(30), Duration::from_hours(24))?);
/// let alert = Key::new("budget:alert:tenant-1:2026-11:80")?;
/// match once.claim(&alert).await {
///     Claimed::Won(claim) => assert!(claim.complete("sent").await?),
///     Claimed::InProgress { .. } | Claimed::Done { .. } => unreachable!("nobody else is here"),
/// }
/// let Claimed::Done { result, .. } = once.claim(&alert).await else { panic!("it was sent") };
/// assert_eq!(&result[..], b"sent");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Once {
    inner: Arc<Inner>,
    policy: Policy,
}

struct Inner {
    shared: Option<RedisOnce>,
    local: MemoryOnce,
    fallback: Fallback,
    clock: Clock,
    tasks: Tasks,
}

impl Once {
    /// The largest result, in bytes.
    pub const MOST_RESULT_BYTES: usize = 64 * 1024;

    #[must_use]
    pub fn new(backend: &Backend, policy: Policy) -> Self {
        let inner = Inner {
            shared: backend.shared.clone().map(RedisOnce::new),
            local: MemoryOnce::new(MOST_LOCAL_KEYS),
            fallback: backend.fallback.clone(),
            clock: backend.clock.clone(),
            tasks: backend.tasks.clone(),
        };
        Once { inner: Arc::new(inner), policy }
    }

    /// The same names under other times.
    #[must_use]
    pub fn with_policy(&self, policy: Policy) -> Self {
        Once { inner: Arc::clone(&self.inner), policy }
    }

    /// Claims the name, unless it is done or somebody is at it.
    pub async fn claim(&self, name: &Key) -> Claimed {
        let owner = Holder::random();
        if let Some(shared) = &self.inner.shared
            && let Some(answer) =
                self.inner.fallback.attempt("once_claim", shared.claim(name, owner, self.policy.lease_us)).await
        {
            return self.claimed(name, owner, answer, true);
        }
        let answer = self.inner.local.claim(name, owner, self.policy.lease_us, self.inner.clock.now_us());
        self.claimed(name, owner, answer, false)
    }

    fn claimed(&self, name: &Key, owner: Holder, answer: Answer, by_redis: bool) -> Claimed {
        let degraded = self.inner.shared.is_some() && !by_redis;
        match answer {
            Answer::Won { fence } => Claimed::Won(Claim {
                once: self.clone(),
                name: name.clone(),
                owner,
                fence,
                by_redis,
                degraded,
                is_open: true,
            }),
            Answer::InProgress { retry_after_us } => {
                Claimed::InProgress { retry_after: Duration::from_micros(retry_after_us), degraded }
            }
            Answer::Done { result } => Claimed::Done { result, degraded },
        }
    }

    async fn abandon(&self, name: &Key, owner: Holder, by_redis: bool) -> Result<bool, Error> {
        match &self.inner.shared {
            Some(shared) if by_redis => self.reach("once_abandon", shared.abandon(name, owner)).await,
            _ => Ok(self.inner.local.abandon(name, owner, self.inner.clock.now_us())),
        }
    }

    /// What a claim by Redis asks, only Redis can answer.
    async fn reach(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<bool, Error>>,
    ) -> Result<bool, Error> {
        self.inner.fallback.attempt(operation, call).await.ok_or(Error::Deadline(self.inner.fallback.deadline()))
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Once").field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// A name that is the caller's for now. Dropping it without [`Claim::complete`] abandons it.
#[must_use = "a claim that is dropped is abandoned"]
pub struct Claim {
    once: Once,
    name: Key,
    owner: Holder,
    fence: u64,
    /// A claim is only ever shown to whoever gave it.
    by_redis: bool,
    degraded: bool,
    is_open: bool,
}

impl Claim {
    /// Larger than the fence of every earlier claim of this name.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// Was it decided without Redis?
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.degraded
    }

    /// Extends the claim by a full lease. `false`: it was lost, somebody else may be at it.
    ///
    /// # Errors
    /// Redis did not answer: the claim may or may not have been extended.
    pub async fn renew(&self) -> Result<bool, Error> {
        let (inner, lease_us) = (&self.once.inner, self.once.policy.lease_us);
        match &inner.shared {
            Some(shared) if self.by_redis => {
                self.once.reach("once_renew", shared.renew(&self.name, self.owner, lease_us)).await
            }
            _ => Ok(inner.local.renew(&self.name, self.owner, lease_us, inner.clock.now_us())),
        }
    }

    /// Marks the name done. `false`: the claim was lost and somebody else's result stands or will.
    ///
    /// # Errors
    /// The result is too large, or Redis did not answer: then the name may or may not be done. The claim ends by itself.
    pub async fn complete(mut self, result: impl Into<Bytes>) -> Result<bool, Error> {
        let result = result.into();
        if result.len() > Once::MOST_RESULT_BYTES {
            return Err(Error::TooLarge { field: "result", most: Once::MOST_RESULT_BYTES as u64 });
        }
        // From here on the work is done: it must not be abandoned, even if nobody hears of it.
        self.is_open = false;
        let (inner, keep_us) = (&self.once.inner, self.once.policy.keep_us);
        match &inner.shared {
            Some(shared) if self.by_redis => {
                self.once.reach("once_complete", shared.complete(&self.name, self.owner, &result, keep_us)).await
            }
            _ => Ok(inner.local.complete(&self.name, self.owner, result, keep_us, inner.clock.now_us())),
        }
    }

    /// Frees the name for the next claimer. `false`: the claim was lost.
    ///
    /// # Errors
    /// Redis did not answer; the claim ends by itself.
    pub async fn abandon(mut self) -> Result<bool, Error> {
        self.is_open = false;
        self.once.abandon(&self.name, self.owner, self.by_redis).await
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.is_open {
            return;
        }
        let inner = &self.once.inner;
        if !self.by_redis {
            inner.local.abandon(&self.name, self.owner, inner.clock.now_us());
        } else if Handle::try_current().is_ok() {
            // Outside a runtime nothing can be sent; then the claim ends by itself.
            let (once, name, owner) = (self.once.clone(), self.name.clone(), self.owner);
            inner.tasks.spawn_draining(async move {
                once.abandon(&name, owner, true).await.ok();
            });
        }
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Claim").field("name", &self.name).field("fence", &self.fence).finish_non_exhaustive()
    }
}
