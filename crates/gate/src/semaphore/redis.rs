//! Permits in Redis: each operation is one script over one key, see `rules.lua`.

use super::Policy;
use super::permits::Check;
use crate::redis::reply::{integer, integers, small};
use crate::redis::{Arg, Redis, Script};
use crate::{Error, Holder, Key};

static ACQUIRE: Script =
    Script::new(concat!(include_str!("../redis/now.lua"), include_str!("rules.lua"), include_str!("acquire.lua")));
static RENEW: Script =
    Script::new(concat!(include_str!("../redis/now.lua"), include_str!("rules.lua"), include_str!("renew.lua")));
static RELEASE: Script =
    Script::new(concat!(include_str!("../redis/now.lua"), include_str!("rules.lua"), include_str!("release.lua")));
static ADOPT: Script =
    Script::new(concat!(include_str!("../redis/now.lua"), include_str!("rules.lua"), include_str!("adopt.lua")));
static HELD: Script =
    Script::new(concat!(include_str!("../redis/now.lua"), include_str!("rules.lua"), include_str!("held.lua")));

/// The kind in a semaphore's key.
pub(crate) const KIND: &str = "sem";

#[derive(Clone)]
pub(crate) struct RedisSemaphore {
    redis: Redis,
}

impl RedisSemaphore {
    pub(crate) fn new(redis: Redis) -> Self {
        RedisSemaphore { redis }
    }

    pub(crate) async fn acquire(&self, key: &Key, policy: &Policy, holder: Holder) -> Result<Check, Error> {
        let args = vec![text(policy.limit), text(policy.lease_us), text(holder)];
        let reply = self.redis.run(&ACQUIRE, &[self.name(key)], args).await?;
        match integers(&reply)?[..] {
            [1] => Ok(Check::Pass),
            [0, retry_after_us] => Ok(Check::Full { retry_after_us }),
            _ => Err(Error::UnexpectedReply),
        }
    }

    pub(crate) async fn renew(&self, key: &Key, policy: &Policy, holder: Holder) -> Result<bool, Error> {
        let args = vec![text(policy.lease_us), text(holder)];
        Ok(integer(&self.redis.run(&RENEW, &[self.name(key)], args).await?)? == 1)
    }

    /// Counts a permit that this process gave while Redis was away.
    pub(crate) async fn adopt(&self, key: &Key, policy: &Policy, holder: Holder) -> Result<bool, Error> {
        let args = vec![text(policy.lease_us), text(holder)];
        Ok(integer(&self.redis.run(&ADOPT, &[self.name(key)], args).await?)? == 1)
    }

    pub(crate) async fn release(&self, key: &Key, holder: Holder) -> Result<bool, Error> {
        Ok(integer(&self.redis.run(&RELEASE, &[self.name(key)], vec![text(holder)]).await?)? == 1)
    }

    pub(crate) async fn held(&self, key: &Key) -> Result<u32, Error> {
        small(integer(&self.redis.run(&HELD, &[self.name(key)], Vec::<Arg>::new()).await?)?)
    }

    fn name(&self, key: &Key) -> String {
        self.redis.name(KIND, key)
    }
}

fn text(value: impl ToString) -> Vec<u8> {
    value.to_string().into_bytes()
}
