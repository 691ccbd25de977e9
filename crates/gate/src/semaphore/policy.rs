//! How many may hold a key at once, and for how long without a sign of life.

use std::time::Duration;

use crate::Error;
use crate::clock::micros;

/// Checked: at least one permit, and a lease between a millisecond and an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    pub(crate) limit: u32,
    pub(crate) lease_us: u64,
}

impl Policy {
    const MOST_PERMITS: u32 = 1_000_000;
    const LONGEST_LEASE: Duration = Duration::from_hours(1);

    /// At most `limit` holders in the fleet. A holder that dies gives its permit back after `lease`; one that lives
    /// renews at a third of it, so the lease bounds a crash, not the work.
    ///
    /// # Errors
    /// Zero permits or more than a million; a lease under a millisecond or over an hour.
    pub fn new(limit: u32, lease: Duration) -> Result<Self, Error> {
        if limit == 0 {
            return Err(Error::TooSmall { field: "limit", least: 1 });
        }
        if limit > Policy::MOST_PERMITS {
            return Err(Error::TooLarge { field: "limit", most: Policy::MOST_PERMITS.into() });
        }
        if lease < Duration::from_millis(1) {
            return Err(Error::Policy { field: "lease", problem: "must be at least 1ms" });
        }
        if lease > Policy::LONGEST_LEASE {
            return Err(Error::Policy { field: "lease", problem: "may be at most one hour; a holder renews it" });
        }
        Ok(Policy { limit, lease_us: micros(lease) })
    }

    /// What one of `replicas` may hold when they cannot agree: an even share, and at least one.
    pub(crate) fn share(self, replicas: u32) -> Policy {
        Policy { limit: (self.limit / replicas.max(1)).max(1), ..self }
    }
}
