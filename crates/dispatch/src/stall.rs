//! Writes that do not get through: events that were accepted, or what became of calls, wait for the database to take them.
//!
//! They are tried for ever, for what is given up is lost; so somebody has to hear of them.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

/// When each write that fails began to. Cheap to clone.
#[derive(Clone, Default)]
pub struct Stalls(Arc<Mutex<Vec<Instant>>>);

/// One write. It stalls from its first failure until it is dropped.
pub(crate) struct Stall {
    all: Stalls,
    since: Option<Instant>,
}

impl Stalls {
    /// How long the one that has waited longest has.
    pub fn longest(&self) -> Option<Duration> {
        self.0.lock().iter().min().map(Instant::elapsed)
    }

    pub(crate) fn watch(&self) -> Stall {
        Stall { all: self.clone(), since: None }
    }
}

impl Stall {
    pub(crate) fn failed(&mut self) {
        self.since.get_or_insert_with(|| {
            let now = Instant::now();
            self.all.0.lock().push(now);
            now
        });
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        // Which of two that began in one moment it is makes no difference.
        if let Some(place) = all.iter().position(|since| Some(*since) == self.since) {
            all.swap_remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_stalls_from_its_first_failure_until_it_is_done_with() {
        let stalls = Stalls::default();
        let [mut first, mut second] = [stalls.watch(), stalls.watch()];
        assert_eq!(stalls.longest(), None);
        first.failed();
        let all = || stalls.0.lock().clone();
        let begun = all();
        first.failed();
        assert_eq!(all(), begun);
        second.failed();
        assert_eq!(all().len(), 2);
        drop(first);
        assert!(stalls.longest().is_some());
        drop(second);
        assert_eq!(stalls.longest(), None);
    }
}
