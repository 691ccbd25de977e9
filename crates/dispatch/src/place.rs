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

/// The bytes of a payload that is in hand; let go when it is dropped.
pub(crate) struct Weight {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl Weight {
    /// So many more of those that `all` counts.
    pub(crate) fn of(all: &Arc<AtomicUsize>, bytes: usize) -> Self {
        all.fetch_add(bytes, Relaxed);
        Weight { all: Arc::clone(all), bytes }
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Relaxed);
    }
}
