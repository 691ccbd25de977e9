//! Permits in this process: the rules and a map.

use super::Policy;
use super::permits::{Check, Permits};
use crate::map::Map;
use crate::{Holder, Key};

pub(crate) struct MemorySemaphore {
    keys: Map<Permits>,
}

impl MemorySemaphore {
    pub(crate) fn new(max_keys: usize) -> Self {
        MemorySemaphore { keys: Map::new("semaphore", max_keys) }
    }

    pub(crate) fn acquire(&self, key: &Key, policy: &Policy, holder: Holder, now_us: u64) -> Check {
        self.keys.update(key, now_us, |permits| {
            let check = permits.acquire(policy, holder, now_us);
            (check, permits.idle_from_us())
        })
    }

    /// Counts a permit that Redis gave to this process, so that its share is known the moment Redis is gone.
    pub(crate) fn mirror(&self, key: &Key, policy: &Policy, holder: Holder, now_us: u64) {
        self.keys.update(key, now_us, |permits| {
            permits.add(policy, holder, now_us);
            ((), permits.idle_from_us())
        });
    }

    pub(crate) fn renew(&self, key: &Key, policy: &Policy, holder: Holder, now_us: u64) -> bool {
        self.keys.update(key, now_us, |permits| {
            let is_held = permits.renew(policy, holder, now_us);
            (is_held, permits.idle_from_us())
        })
    }

    pub(crate) fn release(&self, key: &Key, holder: Holder, now_us: u64) -> bool {
        self.keys.update(key, now_us, |permits| {
            let was_held = permits.release(holder);
            (was_held, permits.idle_from_us())
        })
    }

    pub(crate) fn held(&self, key: &Key, now_us: u64) -> u32 {
        self.keys.read(key, |permits| permits.held(now_us)).unwrap_or(0)
    }
}
