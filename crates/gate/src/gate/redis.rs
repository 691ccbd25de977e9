//! The gate in Redis: one script to enter, one to leave, concurrent calls batched.

use super::Policy;
use crate::breaker::{self, Check, Recorded, Ticket, parse_check, parse_recorded};
use crate::limiter::{self, Ask, limit_args, limiter_rules};
use crate::redis::reply::{integer, integers};
use crate::redis::{Arg, Batch, Call, Redis, Script};
use crate::semaphore;
use crate::tasks::Tasks;
use crate::{Error, Holder, Key};

static ENTER: Script = Script::new(concat!(
    limiter_rules!(),
    include_str!("../breaker/rules.lua"),
    include_str!("../semaphore/rules.lua"),
    include_str!("enter.lua"),
    include_str!("../redis/batch.lua"),
));
static EXIT: Script = Script::new(concat!(
    include_str!("../redis/now.lua"),
    include_str!("../breaker/rules.lua"),
    include_str!("../semaphore/rules.lua"),
    include_str!("exit.lua"),
    include_str!("../redis/batch.lua"),
));
static RENEW: Script = Script::new(concat!(
    include_str!("../redis/now.lua"),
    include_str!("../breaker/rules.lua"),
    include_str!("../semaphore/rules.lua"),
    include_str!("renew.lua"),
));

#[derive(Clone)]
pub(super) struct RedisGate {
    redis: Redis,
    enter: Batch,
    exit: Batch,
}

/// What `enter.lua` answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reply {
    Pass { circuit: Option<(Check, Ticket)>, rate: Option<limiter::Report> },
    Rate(limiter::Report),
    Circuit(Check),
    Concurrency { retry_after_us: u64 },
}

impl RedisGate {
    pub(super) fn new(redis: &Redis, tasks: &Tasks) -> RedisGate {
        let batch = |script| Batch::new(redis.clone(), script, tasks.clone());
        RedisGate { redis: redis.clone(), enter: batch(&ENTER), exit: batch(&EXIT) }
    }

    pub(super) async fn enter(
        &self,
        target: &Key,
        policy: &Policy,
        circuit: Option<String>,
        rate: Option<&Ask>,
        holder: Holder,
    ) -> Result<Reply, Error> {
        let call = self.enter_call(target, policy, circuit, rate, holder);
        parse(&integers(&self.enter.call(call).await?)?, policy, holder)
    }

    fn keys(&self, target: &Key, policy: &Policy) -> Vec<String> {
        let limit_kind = policy.rate.as_ref().map_or("gcra", limiter::Policy::kind);
        vec![
            self.redis.name(breaker::KIND, target),
            self.redis.name(limit_kind, target),
            self.redis.name(semaphore::KIND, target),
        ]
    }

    fn enter_call(
        &self,
        target: &Key,
        policy: &Policy,
        circuit: Option<String>,
        rate: Option<&Ask>,
        holder: Holder,
    ) -> Call {
        let (permits, lease_us) = policy.concurrency.map_or((0, 0), |permits| (permits.limit, permits.lease_us));
        let terms = format!("{permits} {lease_us} {}", policy.ahead_us);
        let circuit = circuit.unwrap_or_default();
        let [cost, rate] = rate.map_or([Arg::Int(0), Arg::from("")], |ask| limit_args(ask.policy(), ask.cost()));
        let args = vec![Arg::Text(holder.to_string()), Arg::Text(circuit), Arg::Text(terms), cost, rate];
        Call { keys: self.keys(target, policy), args }
    }

    /// Frees the holder's permit, if there is one, and hands in the report, if there is one. Was the permit still held?
    /// `must_hold`: if not, the report does not count.
    pub(super) async fn exit(
        &self,
        target: &Key,
        permit: Option<Holder>,
        report: Option<(String, String)>,
        must_hold: bool,
    ) -> Result<(bool, Option<Recorded>), Error> {
        let keys = vec![self.redis.name(breaker::KIND, target), self.redis.name(semaphore::KIND, target)];
        let (policy, report) = report.unwrap_or_default();
        let holder = permit.map_or_else(String::new, |holder| holder.to_string());
        let args = vec![Arg::Text(holder), Arg::Text(policy), Arg::Text(report), Arg::Int(must_hold.into())];
        match &integers(&self.exit.call(Call { keys, args }).await?)?[..] {
            [released] => Ok((*released == 1, None)),
            [released, recorded @ ..] => Ok((*released == 1, Some(parse_recorded(recorded)?))),
            [] => Err(Error::UnexpectedReply),
        }
    }

    /// Renews a permit and the probe that came with it. Is the permit still held?
    pub(super) async fn renew(
        &self,
        target: &Key,
        permit: Holder,
        lease_us: u64,
        circuit: String,
        probe: Holder,
    ) -> Result<bool, Error> {
        let keys = [self.redis.name(breaker::KIND, target), self.redis.name(semaphore::KIND, target)];
        let args = [permit.to_string(), lease_us.to_string(), circuit, probe.to_string()];
        let reply = self.redis.run(&RENEW, &keys, args.map(String::into_bytes).to_vec()).await?;
        Ok(integer(&reply)? == 1)
    }
}

/// What a bench needs to send the same script without this crate around it.
#[cfg(feature = "bench")]
impl super::Gate {
    pub(crate) fn bare_enter(&self, target: &Key, policy: &Policy) -> redis::Cmd {
        let question = self.question(target, policy, std::num::NonZeroU64::MIN);
        let circuit = question.breaker.as_ref().map(breaker::Breaker::policy_argument);
        let Some(shared) = &self.inner.shared else { return redis::Cmd::new() };
        shared.enter.bare(&shared.enter_call(target, policy, circuit, question.rate.as_ref(), question.holder))
    }

    pub(crate) fn bare_keys(&self, target: &Key, policy: &Policy) -> Vec<String> {
        self.inner.shared.as_ref().map(|shared| shared.keys(target, policy)).unwrap_or_default()
    }
}

fn parse(reply: &[u64], policy: &Policy, holder: Holder) -> Result<Reply, Error> {
    match *reply {
        [1, code, x, y, z, limit, wait_us, remaining, reset_after_us] => {
            let circuit = match code {
                0 => None,
                2 => Some((Check::Probe, Ticket { generation: x, probe: Some(holder) })),
                _ => Some((parse_check(&[code, x, y, z])?.0, Ticket { generation: x, probe: None })),
            };
            let rate = policy.rate.is_some().then(|| rate([limit, wait_us, remaining, reset_after_us])).transpose()?;
            Ok(Reply::Pass { circuit, rate })
        }
        [0, 1, limit, wait_us, remaining, reset_after_us] => {
            rate([limit, wait_us, remaining, reset_after_us]).map(Reply::Rate)
        }
        [0, 2, retry_after_us, reason] => Ok(Reply::Circuit(parse_check(&[0, retry_after_us, reason])?.0)),
        [0, 3, retry_after_us] => Ok(Reply::Concurrency { retry_after_us }),
        _ => Err(Error::UnexpectedReply),
    }
}

fn rate(fields: [u64; 4]) -> Result<limiter::Report, Error> {
    limiter::Report::from_fields(fields)
}
