//! Claims in Redis: each operation is one script over one key, see `rules.lua`.

use bytes::Bytes;
use redis::Value;

use super::claim::Answer;
use crate::redis::reply::integer;
use crate::redis::{Redis, Script};
use crate::{Error, Holder, Key};

static CLAIM: Script =
    Script::new(concat!(include_str!("../redis/now.lua"), include_str!("rules.lua"), include_str!("claim.lua")));
static RENEW: Script =
    Script::new(concat!(include_str!("../redis/now.lua"), include_str!("rules.lua"), include_str!("renew.lua")));
static COMPLETE: Script =
    Script::new(concat!(include_str!("../redis/now.lua"), include_str!("rules.lua"), include_str!("complete.lua")));
static ABANDON: Script =
    Script::new(concat!(include_str!("../redis/now.lua"), include_str!("rules.lua"), include_str!("abandon.lua")));

const KIND: &str = "once";

#[derive(Clone)]
pub(crate) struct RedisOnce {
    redis: Redis,
}

impl RedisOnce {
    pub(crate) fn new(redis: Redis) -> Self {
        RedisOnce { redis }
    }

    pub(crate) async fn claim(&self, name: &Key, owner: Holder, lease_us: u64) -> Result<Answer, Error> {
        let args = vec![text(owner), text(lease_us)];
        let Value::Array(mut reply) = self.redis.run(&CLAIM, &[self.name(name)], args).await? else {
            return Err(Error::UnexpectedReply);
        };
        match (reply.first().map(integer), reply.pop()) {
            (Some(Ok(1)), Some(fence)) => Ok(Answer::Won { fence: integer(&fence)? }),
            (Some(Ok(0)), Some(left)) => Ok(Answer::InProgress { retry_after_us: integer(&left)? }),
            (Some(Ok(2)), Some(Value::BulkString(result))) => Ok(Answer::Done { result: Bytes::from(result) }),
            _ => Err(Error::UnexpectedReply),
        }
    }

    pub(crate) async fn renew(&self, name: &Key, owner: Holder, lease_us: u64) -> Result<bool, Error> {
        self.change(&RENEW, name, vec![text(owner), text(lease_us)]).await
    }

    pub(crate) async fn complete(&self, name: &Key, owner: Holder, result: &[u8], keep_us: u64) -> Result<bool, Error> {
        self.change(&COMPLETE, name, vec![text(owner), text(keep_us), result.to_vec()]).await
    }

    pub(crate) async fn abandon(&self, name: &Key, owner: Holder) -> Result<bool, Error> {
        self.change(&ABANDON, name, vec![text(owner)]).await
    }

    async fn change(&self, script: &Script, name: &Key, args: Vec<Vec<u8>>) -> Result<bool, Error> {
        Ok(integer(&self.redis.run(script, &[self.name(name)], args).await?)? == 1)
    }

    fn name(&self, name: &Key) -> String {
        self.redis.name(KIND, name)
    }
}

fn text(value: impl ToString) -> Vec<u8> {
    value.to_string().into_bytes()
}
