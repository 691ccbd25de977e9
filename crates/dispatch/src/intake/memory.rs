//! Memory for requests that are read and not yet written: so much in a process, and no tenant takes all of it.
//!
//! A request holds memory for what has come of it, also while the rest is still to come: a sender that stalls in the middle of
//! thousands of lines holds up its own tenant alone.

use std::{sync::Arc, time::Duration};

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::{
    sync::{AcquireError, OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::error::Error;

/// In KiB, as everything here.
const MOST: usize = 128 << 10;
const MOST_OF_ONE: usize = MOST - MOST / 4;
/// How long a request waits for memory before it is told to come back.
const PATIENCE: Duration = Duration::from_secs(1);
/// Of tenants that hold nothing no more are remembered.
const MOST_TENANTS: usize = 1024;

/// A part of it, given back when dropped.
#[derive(Debug)]
pub struct Memory {
    of_tenant: OwnedSemaphorePermit,
    of_all: OwnedSemaphorePermit,
}

/// Cheap to clone.
#[derive(Clone)]
pub(super) struct Pool {
    all: Arc<Semaphore>,
    tenants: Arc<Mutex<HashMap<Arc<str>, Arc<Semaphore>>>>,
}

impl Memory {
    pub(crate) fn bytes(&self) -> usize {
        self.of_all.num_permits() << 10
    }

    pub(super) fn merge(&mut self, more: Memory) {
        self.of_tenant.merge(more.of_tenant);
        self.of_all.merge(more.of_all);
    }
}

impl Pool {
    pub(super) fn new() -> Self {
        Pool { all: Arc::new(Semaphore::new(MOST)), tenants: Arc::default() }
    }

    pub(super) async fn hold(&self, tenant: &Arc<str>, bytes: usize) -> Result<Memory, Error> {
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        let share = self.share_of(tenant);
        // Nearly always there is some, and nothing to wait for.
        if let Ok(of_tenant) = Arc::clone(&share).try_acquire_many_owned(kib)
            && let Ok(of_all) = Arc::clone(&self.all).try_acquire_many_owned(kib)
        {
            return Ok(Memory { of_tenant, of_all });
        }
        let both = async {
            let of_tenant = share.acquire_many_owned(kib).await?;
            let of_all = Arc::clone(&self.all).acquire_many_owned(kib).await?;
            Ok::<_, AcquireError>(Memory { of_tenant, of_all })
        };
        timeout(PATIENCE, both).await.map_err(|_| Error::Busy)?.map_err(|_| Error::Closed)
    }

    fn share_of(&self, tenant: &Arc<str>) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock();
        if let Some(share) = tenants.get(tenant) {
            return Arc::clone(share);
        }
        if tenants.len() >= MOST_TENANTS {
            // Whoever holds some of it has one, too.
            tenants.retain(|_, share| Arc::strong_count(share) > 1);
        }
        let share = Arc::new(Semaphore::new(MOST_OF_ONE));
        tenants.insert(Arc::clone(tenant), Arc::clone(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// Some hundred bodies of one key that stalled before their end held all of it, and every tenant was told `busy`.
    #[tokio::test(start_paused = true)]
    async fn a_tenant_finds_memory_beside_one_that_holds_as_much_as_it_may() {
        let (pool, acme, beta): (_, Arc<str>, Arc<str>) = (Pool::new(), "acme".into(), "beta".into());
        let mut held = Vec::new();
        while let Ok(memory) = pool.hold(&acme, MIB).await {
            held.push(memory);
        }
        assert_eq!(held.len(), 96);
        let of_beta = pool.hold(&beta, 32 * MIB).await;
        assert!(of_beta.is_ok() && matches!(pool.hold(&beta, 1).await, Err(Error::Busy)), "that is all there is");
        drop((of_beta, held));
        assert!(pool.hold(&acme, 96 * MIB).await.is_ok(), "all of it was given back");
    }

    #[tokio::test]
    async fn tenants_that_hold_nothing_are_forgotten() {
        let (pool, acme): (_, Arc<str>) = (Pool::new(), "acme".into());
        let held = pool.hold(&acme, MIB).await;
        for number in 0..2 * MOST_TENANTS {
            assert!(pool.hold(&number.to_string().into(), 1).await.is_ok());
        }
        assert!(pool.tenants.lock().len() <= MOST_TENANTS && pool.tenants.lock().contains_key("acme"));
        drop(held);
    }
}
