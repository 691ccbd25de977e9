//! Concurrent calls of one script become one `EVALSHA`, without a timer.
//!
//! While no batch is under way a call is sent at once and alone. Otherwise it waits, and whatever has gathered when a batch
//! comes back, or is worth a batch of its own, goes out together. The calls of a batch run in the order they came, on one
//! server time. A caller that stopped waiting is left out: what was not sent is never charged. On a cluster every call
//! leaves at once: a batch would be as late as its latest node.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::{Arg, Redis, Script};
use crate::Error;
use crate::tasks::Tasks;

/// Batches under way at a time. Two keep the server busy while a reply is being read.
const MOST_IN_FLIGHT: usize = 2;
/// Calls that leave beside a batch under way. Fewer wait for it: the smaller a batch, the more each of its calls costs.
const WORTH_ANOTHER: usize = 16;
/// Calls in one batch: few enough that no other client of the server waits long.
const MOST_CALLS: usize = 128;
/// Beyond this a caller is told at once instead of waiting in vain.
const MOST_WAITING: usize = 8_192;

/// One call of a batch script: its keys (all with one tag) and its arguments.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) keys: Vec<String>,
    pub(crate) args: Vec<Arg>,
}

impl Call {
    /// How many keys and how many arguments it has.
    fn shape(&self) -> [Arg; 2] {
        [self.keys.len(), self.args.len()].map(|count| Arg::Int(count as u64))
    }
}

/// The calls of one script. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Batch {
    inner: Arc<Inner>,
}

struct Inner {
    redis: Redis,
    script: &'static Script,
    tasks: Tasks,
    lane: Mutex<Lane>,
}

#[derive(Default)]
struct Lane {
    in_flight: usize,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    call: Call,
    reply: oneshot::Sender<Result<Value, Error>>,
}

/// What a new call has to do.
enum Turn {
    Now(Call),
    Wait(oneshot::Receiver<Result<Value, Error>>),
}

impl Batch {
    /// `script` ends with `batch.lua`.
    pub(crate) fn new(redis: Redis, script: &'static Script, tasks: Tasks) -> Batch {
        Batch { inner: Arc::new(Inner { redis, script, tasks, lane: Mutex::default() }) }
    }

    /// Runs one call, alone or with others; answers what the script's `operation` returned for it.
    pub(crate) async fn call(&self, call: Call) -> Result<Value, Error> {
        match self.inner.take_turn(call)? {
            Turn::Now(call) => {
                let _flight = Flight(self.inner.clone());
                let mut replies = self.inner.send(vec![call]).await?;
                one(replies.pop())
            }
            Turn::Wait(reply) => reply.await.unwrap_or(Err(Error::NotConnected)),
        }
    }
}

/// What a bench needs to send the same script without this crate around it.
#[cfg(feature = "bench")]
impl Batch {
    pub(crate) fn bare(&self, call: &Call) -> redis::Cmd {
        let mut args = call.shape().to_vec();
        args.extend(call.args.iter().cloned());
        args.push(Arg::Text(String::new()));
        self.inner.script.by_hash(&call.keys, &args)
    }
}

impl Inner {
    fn take_turn(self: &Arc<Inner>, call: Call) -> Result<Turn, Error> {
        let mut lane = self.lane.lock();
        if lane.waiting.len().max(lane.in_flight) >= MOST_WAITING {
            return Err(Error::Overloaded);
        }
        if lane.in_flight == 0 || self.redis.is_cluster() {
            lane.in_flight += 1;
            return Ok(Turn::Now(call));
        }
        let (reply, receiver) = oneshot::channel();
        lane.waiting.push_back(Waiting { call, reply });
        if lane.in_flight < MOST_IN_FLIGHT && lane.waiting.len() >= WORTH_ANOTHER {
            lane.in_flight += 1;
            drop(lane);
            // Nothing is under way in it yet, so it ends and the next one leaves.
            drop(Flight(self.clone()));
        }
        Ok(Turn::Wait(receiver))
    }

    /// One script for all these calls; one reply each.
    async fn send(&self, calls: Vec<Call>) -> Result<Vec<Value>, Error> {
        let count = calls.len();
        let differ = calls.iter().any(|call| call.shape() != calls[0].shape());
        let mut keys = Vec::with_capacity(calls.iter().map(|call| call.keys.len()).sum());
        let mut args = Vec::with_capacity(calls.iter().map(|call| call.args.len() + 2).sum::<usize>() + 3);
        args.extend(if differ { [Arg::from(""), Arg::from("")] } else { calls[0].shape() });
        for call in calls {
            if differ {
                args.extend(call.shape());
            }
            keys.extend(call.keys);
            args.extend(call.args);
        }
        match self.redis.run(self.script, &keys, args).await? {
            Value::Array(replies) if replies.len() == count => Ok(replies),
            _ => Err(Error::UnexpectedReply),
        }
    }

    async fn send_all(&self, mut waiting: Vec<Waiting>) {
        // Whoever left since this batch was gathered is not charged either.
        waiting.retain(|waiting| !waiting.reply.is_closed());
        if waiting.is_empty() {
            return;
        }
        let (calls, mut callers): (Vec<_>, Vec<_>) =
            waiting.into_iter().map(|waiting| (waiting.call, waiting.reply)).unzip();
        let all_left = async {
            for caller in &mut callers {
                caller.closed().await;
            }
        };
        let sent = tokio::select! {
            sent = self.send(calls) => sent,
            // A line that went silent must not hold up those who come after it.
            () = all_left => return,
        };
        // A caller that is gone decided without this answer.
        match sent {
            Ok(replies) => {
                for (caller, reply) in callers.into_iter().zip(replies) {
                    caller.send(one(Some(reply))).ok();
                }
            }
            Err(error) => {
                for caller in callers {
                    caller.send(Err(error.clone())).ok();
                }
            }
        }
    }
}

/// A batch under way. When it ends, for whatever reason, the next one leaves.
struct Flight(Arc<Inner>);

impl Drop for Flight {
    fn drop(&mut self) {
        let mut lane = self.0.lane.lock();
        lane.waiting.retain(|waiting| !waiting.reply.is_closed());
        let count = lane.waiting.len().min(MOST_CALLS);
        let next: Vec<Waiting> = lane.waiting.drain(..count).collect();
        if next.is_empty() || Handle::try_current().is_err() {
            lane.in_flight -= 1;
            return;
        }
        drop(lane);
        let inner = self.0.clone();
        self.0.tasks.spawn_draining(async move {
            let flight = Flight(inner);
            flight.0.send_all(next).await;
        });
    }
}

fn one(reply: Option<Value>) -> Result<Value, Error> {
    match reply {
        Some(Value::ServerError(error)) => Err(Error::Redis(error.into())),
        Some(value) => Ok(value),
        None => Err(Error::UnexpectedReply),
    }
}
