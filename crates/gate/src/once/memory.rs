//! Claims in this process: the rules and a map.

use bytes::Bytes;

use super::claim::{Answer, Record};
use crate::map::Map;
use crate::{Holder, Key};

pub(crate) struct MemoryOnce {
    names: Map<Record>,
}

impl MemoryOnce {
    pub(crate) fn new(max_keys: usize) -> Self {
        MemoryOnce { names: Map::new("once", max_keys) }
    }

    pub(crate) fn claim(&self, name: &Key, owner: Holder, lease_us: u64, now_us: u64) -> Answer {
        self.change(name, now_us, |record| record.claim(owner, lease_us, now_us))
    }

    pub(crate) fn renew(&self, name: &Key, owner: Holder, lease_us: u64, now_us: u64) -> bool {
        self.change(name, now_us, |record| record.renew(owner, lease_us, now_us))
    }

    pub(crate) fn complete(&self, name: &Key, owner: Holder, result: Bytes, keep_us: u64, now_us: u64) -> bool {
        self.change(name, now_us, |record| record.complete(owner, result, keep_us, now_us))
    }

    pub(crate) fn abandon(&self, name: &Key, owner: Holder, now_us: u64) -> bool {
        self.change(name, now_us, |record| record.abandon(owner))
    }

    fn change<T>(&self, name: &Key, now_us: u64, change: impl FnOnce(&mut Record) -> T) -> T {
        self.names.update(name, now_us, |record| {
            let answer = change(record);
            (answer, record.idle_from_us(now_us))
        })
    }
}
