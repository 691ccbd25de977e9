//! A place in this process's worker, kept for a delivery that is on its way there, and the memory of one that is there.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Room for one job that is on its way to a lane; free again when it is dropped.
#[derive(Debug)]
pub struct Place(Arc<AtomicUsize>);

impl Place {
    /// One more of those that `promised` counts.
    pub(crate) fn one_of(promised: &Arc<AtomicUsize>) -> Self {
        promised.fetch_add(1, Relaxed);
        Place(Arc::clone(promised))
    }

    #[cfg(test)]
    pub(crate) fn nowhere() -> Self {
        Place::one_of(&Arc::default())
    }
}

impl Clone for Place {
    fn clone(&self) -> Self {
        Place::one_of(&self.0)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// What is in hand: of all, of a tenant, or in a lane.
#[derive(Default)]
pub(crate) struct Load {
    jobs: AtomicUsize,
    bytes: AtomicUsize,
}

impl Load {
    pub(crate) fn jobs(&self) -> usize {
        self.jobs.load(Relaxed)
    }

    /// Of payloads.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }
}

/// One job's part of a load; let go when it is dropped.
pub(crate) struct Weight {
    of: Arc<Load>,
    bytes: usize,
}

impl Weight {
    pub(crate) fn of(load: &Arc<Load>, bytes: usize) -> Self {
        load.jobs.fetch_add(1, Relaxed);
        load.bytes.fetch_add(bytes, Relaxed);
        Weight { of: Arc::clone(load), bytes }
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.of.jobs.fetch_sub(1, Relaxed);
        self.of.bytes.fetch_sub(self.bytes, Relaxed);
    }
}
