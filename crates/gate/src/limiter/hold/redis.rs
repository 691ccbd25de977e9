//! Holds in Redis: a key per hold beside the limit's, and one sorted set of when each ends.
//!
//! The end is written down before anything is taken. A process that dies in between leaves a line without a hold, which
//! the next sweep drops; it never leaves a hold without a line. Lines that are done with are dropped together by the
//! next sweep, and one that stays all the same is found done with at its end.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;

use super::super::policy::Policy;
use super::super::redis::{limit_args, limiter_script, numbers, policy_arg, report};
use super::super::rules::decide::Report;
use super::{KEPT_US, KIND, Outcome, Settlement};
use crate::limiter::Limiter;
use crate::redis::{Arg, Batch, Call, Redis, Script};
use crate::tasks::Tasks;
use crate::{Error, Holder, Key};

static HOLD: Script = limiter_script!("/src/limiter/hold/hold.lua");
static SETTLE: Script = limiter_script!("/src/limiter/hold/settle.lua");
static NOTE: Script = Script::new(concat!(include_str!("../../redis/now.lua"), include_str!("note.lua")));
static ENDED: Script = Script::new(concat!(include_str!("../../redis/now.lua"), include_str!("ended.lua")));

/// The kind in the key of all their ends.
const ENDS: &str = "holds";
/// Ended holds that one sweep takes, and lines that one command drops.
pub(super) const MOST_SWEPT: usize = 500;
/// For how long the process that swept a hold has it for itself.
const SWEPT_US: u64 = 500_000;
/// Lines to be dropped that a process remembers. More stay until their end.
const MOST_DONE: usize = 20_000;

/// What to do with a hold: `settle.lua` knows them by these numbers.
const SETTLES: u64 = 1;
const EXPIRES: u64 = 2;

#[derive(Clone)]
pub(super) struct RedisHolds {
    redis: Redis,
    hold: Batch,
    settle: Batch,
    /// The same script, apart: callers do not queue behind a sweep.
    expire: Batch,
    /// Lines that are done with.
    done: Arc<Mutex<Vec<String>>>,
}

/// One hold's keys and policy, as the line of its end carries them.
struct Place {
    limit: String,
    hold: String,
    policy: [u64; 4],
    capacity: u64,
}

impl RedisHolds {
    pub(super) fn new(redis: &Redis, tasks: &Tasks) -> RedisHolds {
        let batch = |script| Batch::new(redis.clone(), script, tasks.clone());
        RedisHolds {
            redis: redis.clone(),
            hold: batch(&HOLD),
            settle: batch(&SETTLE),
            expire: batch(&SETTLE),
            done: Arc::default(),
        }
    }

    pub(super) async fn hold(
        &self,
        key: &Key,
        policy: &Policy,
        cost: u64,
        holder: Holder,
        lasts_us: u64,
    ) -> Result<Report, Error> {
        let place = self.place(key, policy, holder);
        let line = place.to_line();
        let ends = self.ends();
        self.redis.run(&NOTE, std::slice::from_ref(&ends), vec![Arg::Int(lasts_us), Arg::Text(line.clone())]).await?;
        let [cost, rules] = limit_args(policy, cost);
        let args = vec![cost, rules, Arg::Int(lasts_us + KEPT_US)];
        let taken = report(self.hold.call(Call { keys: vec![place.limit, place.hold], args }).await?)?;
        if taken.wait_us > 0 {
            self.drop_later(line);
        }
        Ok(taken)
    }

    pub(super) async fn settle(
        &self,
        key: &Key,
        policy: &Policy,
        holder: Holder,
        cost: u64,
    ) -> Result<Settlement, Error> {
        let place = self.place(key, policy, holder);
        let settlement = change(&self.settle, &place, cost, SETTLES).await?;
        self.drop_later(place.to_line());
        Ok(settlement)
    }

    /// Ends some of the holds whose time is over; returns how many. Any number of processes may do so at once.
    pub(super) async fn sweep(&self) -> Result<usize, Error> {
        let ends = self.ends();
        let args = vec![Arg::Int(MOST_SWEPT as u64), Arg::Int(SWEPT_US)];
        let lines: Vec<String> =
            redis::from_redis_value(self.redis.run(&ENDED, std::slice::from_ref(&ends), args).await?)
                .map_err(|_| Error::UnexpectedReply)?;
        let count = lines.len();
        let ended = join_all(lines.into_iter().map(async |line| {
            let is_done = match Place::from_line(&line) {
                Some(place) => change(&self.expire, &place, 0, EXPIRES).await.is_ok(),
                None => true,
            };
            is_done.then_some(line)
        }));
        let mut done: Vec<String> = ended.await.into_iter().flatten().collect();
        done.append(&mut self.done.lock());
        for lines in done.chunks(MOST_SWEPT) {
            self.redis.command(redis::cmd("ZREM").arg(&ends).arg(lines)).await?;
        }
        Ok(count)
    }

    fn drop_later(&self, line: String) {
        let mut done = self.done.lock();
        if done.len() < MOST_DONE {
            done.push(line);
        }
    }

    /// Something may have been freed: a refusal that is remembered here is asked for again.
    pub(super) fn denied_forget(&self, limiter: &Limiter, key: &Key) {
        if let Some(shared) = &limiter.shared {
            shared.denied.forget(key);
        }
    }

    fn place(&self, key: &Key, policy: &Policy, holder: Holder) -> Place {
        Place {
            limit: self.redis.name(policy.kind(), key),
            hold: self.redis.name_beside(KIND, key, &holder.to_string()),
            policy: policy.script_args(),
            capacity: policy.capacity(),
        }
    }

    fn ends(&self) -> String {
        self.redis.own_name(ENDS)
    }
}

async fn change(batch: &Batch, place: &Place, cost: u64, what: u64) -> Result<Settlement, Error> {
    let mut args = vec![Arg::Int(cost), policy_arg(place.policy)];
    args.extend([what, place.capacity, KEPT_US].map(Arg::Int));
    let keys = vec![place.limit.clone(), place.hold.clone(), place.mark().to_owned()];
    let [outcome, cost, remaining, reset_after_us] =
        numbers(batch.call(Call { keys, args }).await?)?.try_into().map_err(|_| Error::UnexpectedReply)?;
    let outcome = match outcome {
        0 => Outcome::Unknown,
        1 => Outcome::Settled,
        2 => Outcome::Again,
        3 => Outcome::Late,
        _ => return Err(Error::UnexpectedReply),
    };
    Ok(Settlement { outcome, cost, remaining, reset_after: Duration::from_micros(reset_after_us) })
}

impl Place {
    /// The key that says when the holds of the limit were forgotten: a hold's without the holder.
    fn mark(&self) -> &str {
        self.hold.rsplit_once(':').map_or(&self.hold, |(mark, _)| mark)
    }

    /// Numbers first: the names may hold anything.
    fn to_line(&self) -> String {
        let [algorithm, a, b, c] = self.policy;
        let Place { limit, hold, capacity, .. } = self;
        format!("{algorithm} {a} {b} {c} {capacity} {} {limit}{hold}", limit.len())
    }

    fn from_line(line: &str) -> Option<Place> {
        let mut fields = line.splitn(7, ' ');
        let mut number = || fields.next()?.parse::<u64>().ok();
        let policy = [number()?, number()?, number()?, number()?];
        let (capacity, limit_length) = (number()?, number()?);
        let (limit, hold) = fields.next()?.split_at_checked(usize::try_from(limit_length).ok()?)?;
        Some(Place { limit: limit.to_owned(), hold: hold.to_owned(), policy, capacity })
    }
}

#[cfg(test)]
use crate::redis::reply::integer;

#[cfg(test)]
impl RedisHolds {
    /// Its time is over, whatever the clock says.
    pub(super) async fn expire(&self, key: &Key, policy: &Policy, holder: Holder) -> Result<Settlement, Error> {
        change(&self.expire, &self.place(key, policy, holder), 0, EXPIRES).await
    }

    /// Holds whose end is written down.
    pub(super) async fn lines(&self) -> Result<u64, Error> {
        integer(&self.redis.command(redis::cmd("ZCARD").arg(self.ends())).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_reads_back_what_it_wrote_whatever_the_names_hold() {
        for limit in ["tg:v1:gcra:{a}", "tg:v1:gcra:{a b\n7 7}", ""] {
            let place = Place { limit: limit.to_owned(), hold: "x y".to_owned(), policy: [1, 2, 3, 4], capacity: 5 };
            let read = Place::from_line(&place.to_line()).unwrap();
            assert_eq!((read.limit, read.hold, read.policy, read.capacity), (place.limit, place.hold, [1, 2, 3, 4], 5));
        }
        assert!(Place::from_line("1 2 3 4 5 99 short").is_none());
    }
}
