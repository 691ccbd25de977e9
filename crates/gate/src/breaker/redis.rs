//! Circuits in Redis: each operation is one script over one key, see `rules.lua`.

use std::fmt::Write as _;

use super::circuit::{Check, Force, Outcome, Reason, Recorded, Report, Snapshot, State};
use super::policy::Policy;
use super::window::Counts;
use super::{Answer, Ticket};
use crate::holder::Holder;
use crate::redis::reply::{integer, integers, small};
use crate::redis::{Redis, Script};
use crate::{Error, Key};

static ADMIT: Script =
    Script::new(concat!(include_str!("../redis/now.lua"), include_str!("rules.lua"), include_str!("admit.lua")));
static RECORD: Script =
    Script::new(concat!(include_str!("../redis/now.lua"), include_str!("rules.lua"), include_str!("record.lua")));
static FORCE: Script =
    Script::new(concat!(include_str!("../redis/now.lua"), include_str!("rules.lua"), include_str!("force.lua")));
static VIEW: Script =
    Script::new(concat!(include_str!("../redis/now.lua"), include_str!("rules.lua"), include_str!("view.lua")));

static LIST: Script = Script::new(include_str!("list.lua"));
static ENROL: Script = Script::new(concat!(include_str!("../redis/now.lua"), include_str!("enrol.lua")));

/// Circuits that the list remembers, the latest ones.
const MOST_LISTED: u32 = 10_000;

/// The kind in a circuit's key.
pub(crate) const KIND: &str = "cb";

#[derive(Clone)]
pub(crate) struct RedisBreaker {
    redis: Redis,
}

impl RedisBreaker {
    pub(crate) fn new(redis: Redis) -> Self {
        RedisBreaker { redis }
    }

    /// The answer, and what Redis said about the circuit.
    pub(crate) async fn admit(&self, target: &Key, policy: &Policy) -> Result<(Answer, Check), Error> {
        let holder = Holder::random();
        let args = vec![policy.to_argument().into_bytes(), holder.to_string().into_bytes()];
        let reply = self.redis.run(&ADMIT, &[self.name(target)], args).await?;
        let (check, generation) = parse_check(&integers(&reply)?)?;
        let answer = match check {
            Check::Pass { generation, .. } => Answer::Pass(Ticket { generation, probe: None }),
            Check::Probe => Answer::Pass(Ticket { generation, probe: Some(holder) }),
            Check::Reject { retry_after_us, reason } => Answer::Reject { retry_after_us, reason },
        };
        Ok((answer, check))
    }

    pub(crate) async fn record(&self, target: &Key, policy: &Policy, report: &Report) -> Result<Recorded, Error> {
        let args = vec![policy.to_argument().into_bytes(), report.to_argument().into_bytes()];
        let reply = self.redis.run(&RECORD, &[self.name(target)], args).await?;
        parse_recorded(&integers(&reply)?)
    }

    /// Returns the new generation.
    pub(crate) async fn force(&self, target: &Key, policy: &Policy, force: Option<(Force, u64)>) -> Result<u64, Error> {
        let (code, for_us) = match force {
            None => ("0", 0),
            Some((Force::Open, for_us)) => ("3", for_us),
            Some((Force::Closed, for_us)) => ("4", for_us),
        };
        let args = vec![policy.to_argument().into_bytes(), code.into(), for_us.to_string().into_bytes()];
        integer(&self.redis.run(&FORCE, &[self.name(target)], args).await?)
    }

    pub(crate) async fn view(&self, target: &Key, policy: &Policy) -> Result<Snapshot, Error> {
        let reply = self.redis.run(&VIEW, &[self.name(target)], vec![policy.to_argument().into_bytes()]).await?;
        let [
            phase,
            reason,
            generation,
            trips,
            failures,
            calls,
            failed,
            slow,
            probes,
            successes,
            age_us,
            retry_after_us,
        ] = integers(&reply)?[..]
        else {
            return Err(Error::UnexpectedReply);
        };
        Ok(Snapshot {
            state: parse_state(phase)?,
            reason: parse_reason(reason)?,
            generation,
            trips: small(trips)?,
            failures: small(failures)?,
            counts: Counts { calls, failures: failed, slow },
            probes: small(probes)?,
            successes: small(successes)?,
            age_us,
            retry_after_us,
        })
    }

    /// Puts a circuit that changed on the list. The list has a key of its own, in a slot of its own on a cluster.
    pub(crate) async fn enrol(&self, target: &Key, policy: &Policy) -> Result<(), Error> {
        let args =
            vec![target.as_str().into(), MOST_LISTED.to_string().into_bytes(), policy.ttl_us.to_string().into_bytes()];
        integer(&self.redis.run(&ENROL, &[self.list_name()?], args).await?).map(drop)
    }

    /// One page of targets whose circuit changed, latest first, and where the next page starts.
    pub(crate) async fn list(&self, after: Option<&str>, most: u32) -> Result<(Vec<Key>, Option<String>), Error> {
        let args = vec![after.unwrap_or_default().into(), most.to_string().into_bytes()];
        let reply: Vec<String> = redis::from_redis_value(self.redis.run(&LIST, &[self.list_name()?], args).await?)
            .map_err(|_| Error::UnexpectedReply)?;
        let Some((next, targets)) = reply.split_first() else { return Err(Error::UnexpectedReply) };
        let targets = targets.iter().map(Key::new).collect::<Result<_, _>>()?;
        Ok((targets, Some(next.clone()).filter(|next| !next.is_empty())))
    }

    fn list_name(&self) -> Result<String, Error> {
        Ok(self.redis.name("cbs", &Key::new("list")?))
    }

    fn name(&self, target: &Key) -> String {
        self.redis.name(KIND, target)
    }
}

impl Report {
    /// The report as one argument of a script, as `circuit_report` in `rules.lua` reads it.
    pub(crate) fn to_argument(&self) -> String {
        let outcome = match self.outcome {
            Outcome::Success => 0,
            Outcome::Failure => 1,
            Outcome::Ignored => 2,
        };
        let probe = self.probe.map_or_else(|| "-".to_owned(), |holder| holder.to_string());
        let mut text = format!("{} {outcome} {} {} {probe} ", self.generation, u8::from(self.slow), self.reporter);
        if self.past.is_empty() {
            text.push('-');
        }
        for past in &self.past {
            write!(text, "{}:{},", past.age, past.calls).expect("writing to a String cannot fail");
        }
        text
    }
}

/// Reads what `circuit_check` returns, and the generation that a taken probe reports to.
pub(crate) fn parse_check(reply: &[u64]) -> Result<(Check, u64), Error> {
    match *reply {
        [1, generation, failures, watched] => {
            let (failures, watched, by_order) = (small(failures)?, watched == 1, watched == 2);
            Ok((Check::Pass { generation, failures, watched, by_order }, generation))
        }
        [2, generation] => Ok((Check::Probe, generation)),
        [0, retry_after_us, reason] => Ok((Check::Reject { retry_after_us, reason: parse_reason(reason)? }, 0)),
        _ => Err(Error::UnexpectedReply),
    }
}

/// Reads what `circuit_recorded` returns.
pub(crate) fn parse_recorded(reply: &[u64]) -> Result<Recorded, Error> {
    let [phase, generation, failures, watched, changed] = *reply else { return Err(Error::UnexpectedReply) };
    let (state, failures) = (parse_state(phase)?, small(failures)?);
    Ok(Recorded { state, generation, failures, watched: watched == 1, changed: changed == 1 })
}

fn parse_state(phase: u64) -> Result<State, Error> {
    Ok(match phase {
        0 => State::Closed,
        1 => State::Open,
        2 => State::HalfOpen,
        3 => State::ForcedOpen,
        4 => State::ForcedClosed,
        _ => return Err(Error::UnexpectedReply),
    })
}

pub(crate) fn parse_reason(reason: u64) -> Result<Option<Reason>, Error> {
    Ok(Some(match reason {
        0 => return Ok(None),
        1 => Reason::ConsecutiveFailures,
        2 => Reason::FailureRate,
        3 => Reason::SlowRate,
        4 => Reason::ProbeFailed,
        5 => Reason::Forced,
        _ => return Err(Error::UnexpectedReply),
    }))
}
