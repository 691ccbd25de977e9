//! The rules in Redis: one script per operation, concurrent calls batched, refusals remembered.

use std::sync::Arc;

use redis::Value;

use super::policy::Policy;
use super::rules::decide::{Report, Wait};
use super::{Ask, Limits, hold};
use crate::backend::MOST_LOCAL_KEYS;
use crate::redis::{Arg, Batch, Call, Redis, Script};
use crate::tasks::Tasks;
use crate::{Error, Key};

use super::denied::Denied;

/// The clock and the limiter's rules, for scripts of this crate that decide over a limit.
macro_rules! limiter_rules {
    () => {
        concat!(
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/redis/now.lua")),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/limiter/rules/frontier.lua")),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/limiter/rules/gcra.lua")),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/limiter/rules/token_bucket.lua")),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/limiter/rules/leaky_bucket.lua")),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/limiter/rules/fixed_window.lua")),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/limiter/rules/calendar.lua")),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/limiter/rules/sliding_counter.lua")),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/limiter/rules/sliding_log.lua")),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/limiter/rules/decide.lua")),
        )
    };
}
pub(crate) use limiter_rules;

/// A batch script of the limiter: its rules, then one operation.
macro_rules! limiter_script {
    ($operation:literal) => {
        Script::new(concat!(
            $crate::limiter::limiter_rules!(),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), $operation)),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/redis/batch.lua")),
        ))
    };
}
pub(super) use limiter_script;

static CHECK: Script = limiter_script!("/src/limiter/check.lua");
static CHECK_EVERY: Script = limiter_script!("/src/limiter/check_every.lua");
static PEEK: Script = limiter_script!("/src/limiter/peek.lua");
static RESERVE: Script = limiter_script!("/src/limiter/reserve.lua");
static RESET: Script = Script::new(concat!(include_str!("../redis/now.lua"), include_str!("reset.lua")));
static REFUND: Script = limiter_script!("/src/limiter/refund.lua");

#[derive(Clone)]
pub(super) struct RedisLimiter {
    redis: Redis,
    check: Batch,
    check_every: Batch,
    peek: Batch,
    reserve: Batch,
    refund: Batch,
    pub(super) denied: Arc<Denied>,
}

impl RedisLimiter {
    pub(super) fn new(redis: &Redis, tasks: &Tasks) -> RedisLimiter {
        let batch = |script| Batch::new(redis.clone(), script, tasks.clone());
        RedisLimiter {
            redis: redis.clone(),
            check: batch(&CHECK),
            check_every: batch(&CHECK_EVERY),
            peek: batch(&PEEK),
            reserve: batch(&RESERVE),
            refund: batch(&REFUND),
            denied: Arc::new(Denied::new(MOST_LOCAL_KEYS)),
        }
    }

    pub(super) async fn decide(&self, limits: &Limits<'_>, wait: Wait) -> Result<Report, Error> {
        let (batch, first) = match wait {
            Wait::Peek => (&self.peek, None),
            Wait::AtMost(0) => (&self.check, None),
            Wait::AtMost(longest_us) => (&self.reserve, Some(Arg::Int(longest_us))),
        };
        report(batch.call(self.question(limits, first)).await?)
    }

    /// A report for each limit; all are taken if none has to wait.
    pub(super) async fn decide_every(&self, limits: &Limits<'_>) -> Result<Vec<Report>, Error> {
        let numbers = numbers(self.check_every.call(self.question(limits, None)).await?)?;
        if numbers.len() != limits.asks().len() * 3 {
            return Err(Error::UnexpectedReply);
        }
        let report = |(limit, fields): (usize, &[u64])| Report {
            limit,
            wait_us: fields[0],
            remaining: fields[1],
            reset_after_us: fields[2],
        };
        Ok(numbers.chunks_exact(3).enumerate().map(report).collect())
    }

    fn question(&self, limits: &Limits<'_>, first: Option<Arg>) -> Call {
        let mut args = Vec::with_capacity(1 + limits.asks().len() * 2);
        args.extend(first);
        args.extend(limits.asks().iter().flat_map(|ask| limit_args(&ask.policy, ask.cost)));
        let keys = limits.asks().iter().map(|ask| self.name(&ask.key, &ask.policy)).collect();
        Call { keys, args }
    }

    pub(super) async fn refund(&self, key: &Key, policy: &Policy, cost: u64, ago_us: u64) -> Result<Report, Error> {
        let [cost, rules] = limit_args(policy, cost);
        let args = vec![cost, rules, Arg::Int(ago_us)];
        report(self.refund.call(Call { keys: vec![self.name(key, policy)], args }).await?)
    }

    pub(super) async fn reset(&self, key: &Key, policy: &Policy) -> Result<(), Error> {
        let keys = [self.name(key, policy), self.redis.name(hold::KIND, key)];
        self.redis.run(&RESET, &keys, vec![Arg::Int(hold::LONGEST_KNOWN_US)]).await.map(drop)
    }

    /// On a cluster one script reaches one slot only.
    pub(super) fn accepts(&self, asks: &[Ask]) -> bool {
        !self.redis.is_cluster() || asks.iter().all(|ask| ask.key.tag() == asks[0].key.tag())
    }

    fn name(&self, key: &Key, policy: &Policy) -> String {
        self.redis.name(policy.kind(), key)
    }
}

/// One limit's arguments: see `rules/decide.lua`.
pub(crate) fn limit_args(policy: &Policy, cost: u64) -> [Arg; 2] {
    [Arg::Int(cost), policy_arg(policy.script_args())]
}

/// One text: every argument costs Redis as much as some arithmetic.
pub(super) fn policy_arg([algorithm, x, y, z]: [u64; 4]) -> Arg {
    Arg::Text(format!("{x} {y} {z} {algorithm}"))
}

/// `{limit (from 1), wait_us, remaining, reset_after_us}`.
pub(super) fn report(reply: Value) -> Result<Report, Error> {
    let fields = numbers(reply)?.try_into().map_err(|_| Error::UnexpectedReply)?;
    Report::from_fields(fields)
}

pub(super) fn numbers(reply: Value) -> Result<Vec<u64>, Error> {
    let Value::Array(fields) = reply else { return Err(Error::UnexpectedReply) };
    let number = |field| match field {
        Value::Int(value) => u64::try_from(value).map_err(|_| Error::UnexpectedReply),
        _ => Err(Error::UnexpectedReply),
    };
    fields.into_iter().map(number).collect()
}

impl Report {
    /// As scripts word it: the limit counts from 1.
    pub(crate) fn from_fields([limit, wait_us, remaining, reset_after_us]: [u64; 4]) -> Result<Report, Error> {
        let limit = usize::try_from(limit).ok().and_then(|limit| limit.checked_sub(1)).ok_or(Error::UnexpectedReply)?;
        Ok(Report { limit, wait_us, remaining, reset_after_us })
    }
}

/// What a bench needs to send the same script without this crate around it.
#[cfg(feature = "bench")]
impl RedisLimiter {
    pub(super) fn bare_check(&self, key: &Key, policy: &Policy) -> redis::Cmd {
        self.check.bare(&Call { keys: vec![self.name(key, policy)], args: limit_args(policy, 1).into() })
    }

    pub(super) fn bare_name(&self, key: &Key, policy: &Policy) -> String {
        self.name(key, policy)
    }
}
