//! A place in this process's worker, kept for a delivery that is on its way there.

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
