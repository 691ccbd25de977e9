//! Redis-backed figures, against the bare server: the same script, the same connection kind, the same depth, one run.

use std::future::Future;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;

use super::rounds::{Turn, best, nanos, over_under};
use super::{BenchError, Options, Row};
use crate::clock::micros;
use crate::gate::{self, Entry, Gate, Outcome, Pass};
use crate::limiter::{Algorithm, Limiter, Policy};
use crate::redis::{Config, Status};
use crate::{Backend, Clock, Error, Holder, Key, breaker, fallback, semaphore};

/// Callers at a time.
const DEPTH: usize = 256;
const TARGETS: usize = 1_000;
const HOT_PER_SECOND: u64 = 1_000;

struct Bench {
    backend: Backend,
    bare: MultiplexedConnection,
    targets: Arc<Vec<Key>>,
    turn: Duration,
    turns: usize,
}

pub(super) async fn measure(url: &str, options: &Options) -> Result<Vec<Row>, BenchError> {
    let prefix = format!("bench-{}:", Holder::random());
    let config = Config { prefix, ..Config::new(url) };
    let patient = fallback::Config { deadline: Duration::from_secs(5), ..fallback::Config::default() };
    let backend = Backend::redis_with(config, patient, Clock::System)?;
    let bare = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    wait_for_connection(&backend).await?;
    let targets = (0..TARGETS).map(|n| Key::new(format!("target-{n}"))).collect::<Result<Vec<_>, _>>()?;
    let bench = Bench { backend, bare, targets: Arc::new(targets), turn: options.turn, turns: options.turns };
    let mut rows = bench.round_trip().await.to_vec();
    let (entries, per_second) = bench.entries().await;
    rows.extend(entries);
    rows.push(bench.hot_key().await);
    rows.push(bench.denied(per_second).await?);
    rows.push(bench.bytes_per_key(options.many_keys).await?);
    bench.backend.shutdown().await;
    Ok(rows)
}

/// Checks per second of the bare script, in pipelines of `depth` commands, two under way at a time: the server's own rate
/// over this many keys. The best of several turns.
pub async fn bare_checks(
    url: &str,
    depth: usize,
    keys: &[Key],
    turn: Duration,
    turns: usize,
) -> Result<f64, BenchError> {
    let prefix = format!("bench-{}:", Holder::random());
    let backend = Backend::redis_with(
        Config { prefix, ..Config::new(url) },
        fallback::Config { deadline: Duration::from_secs(5), ..fallback::Config::default() },
        Clock::System,
    )?;
    wait_for_connection(&backend).await?;
    let bare = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let (limiter, policy) = (Limiter::new(&backend), plain(1_000_000));
    // The first call loads the script, so that the bare side may use its hash.
    limiter.check(&keys[0], &policy, NonZeroU64::MIN).await;
    let mut all = Vec::new();
    for _ in 0..turns {
        let one = crowd(2, turn, bare.clone(), |mut bare, n| {
            let mut pipeline = redis::pipe();
            for m in 0..depth as u64 {
                pipeline.add_command(limiter.bare_check(&keys[scatter(n * depth as u64 + m) % keys.len()], &policy));
            }
            async move { bare.send_packed_commands(&pipeline, 0, depth).await.is_ok() }
        });
        all.push(one.await);
    }
    backend.shutdown().await;
    Ok(best(all).per_second() * depth as f64)
}

async fn wait_for_connection(backend: &Backend) -> Result<(), Error> {
    for _ in 0..500 {
        if backend.connection() == Some(Status::Connected) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err(Error::NotConnected)
}

impl Bench {
    /// One caller, one call at a time.
    async fn round_trip(&self) -> [Row; 2] {
        let limiter = Limiter::new(&self.backend);
        let policy = plain(1_000_000);
        // The first call loads the script, so that the bare side may use its hash.
        limiter.check(&self.targets[0], &policy, NonZeroU64::MIN).await;
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..self.turns {
            let turn = crowd(1, self.turn, (limiter.clone(), self.bare.clone()), |(limiter, mut bare), n| {
                let command = limiter.bare_check(&self.targets[scatter(n)], &policy);
                async move { is_answer(bare.send_packed_command(&command).await) }
            });
            bare.push(turn.await);
            let turn = crowd(1, self.turn, limiter.clone(), |limiter, n| {
                let key = self.targets[scatter(n)].clone();
                async move { limiter.check(&key, &policy, NonZeroU64::MIN).await.is_allowed() }
            });
            ours.push(turn.await);
        }
        compare("one check at a time in Redis", &best(ours), "bare EVALSHA of the same script", &best(bare))
    }

    /// Many callers: the gate's whole decision.
    async fn entries(&self) -> ([Row; 2], f64) {
        let gate = Gate::new(&self.backend);
        let policy = guarded();
        drop(gate.enter(&self.targets[0], &policy, NonZeroU64::MIN).await);
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..self.turns {
            bare.push(self.pipelined_turn(&gate, &policy).await);
            self.forget(&gate, &policy).await;
            ours.push(self.enter_turn(&gate, &policy).await);
            self.forget(&gate, &policy).await;
        }
        let ours = best(ours);
        let what = format!("enter: rate, circuit and permit, {DEPTH} callers");
        (compare(&what, &ours, "bare script, pipelined as deep", &best(bare)), ours.per_second())
    }

    /// The server's own rate: pipelines of as many commands as there are callers, two under way at a time.
    async fn pipelined_turn(&self, gate: &Gate, policy: &gate::Policy) -> Turn {
        let turn = crowd(2, self.turn, (gate.clone(), self.bare.clone()), |(gate, mut bare), n| {
            let mut pipeline = redis::pipe();
            for m in 0..DEPTH as u64 / 2 {
                pipeline.add_command(gate.bare_enter(&self.targets[scatter(n * DEPTH as u64 + m)], policy));
            }
            async move {
                let replies = bare.send_packed_commands(&pipeline, 0, DEPTH / 2).await;
                replies.is_ok_and(|replies| replies.into_iter().map(Ok).all(is_answer))
            }
        })
        .await;
        // One operation was a pipeline of many.
        let each = DEPTH as u64 / 2;
        Turn { operations: turn.operations * each, admitted: turn.admitted * each, ..turn }
    }

    /// Passes are kept until the clock has stopped: the figure is of entering alone.
    async fn enter_turn(&self, gate: &Gate, policy: &gate::Policy) -> Turn {
        let passes = Arc::new(parking_lot::Mutex::new(Vec::<Pass>::new()));
        let turn = crowd(DEPTH, self.turn, (gate.clone(), passes.clone()), |(gate, passes), n| {
            let (target, policy) = (self.targets[scatter(n)].clone(), policy.clone());
            async move {
                let entry = gate.enter(&target, &policy, NonZeroU64::MIN).await;
                let is_pass = matches!(entry, Entry::Pass(_));
                if let Entry::Pass(pass) = entry {
                    passes.lock().push(pass);
                }
                is_pass
            }
        })
        .await;
        let passes = std::mem::take(&mut *passes.lock());
        for chunk in chunks(passes, DEPTH) {
            futures_util::future::join_all(chunk.into_iter().map(|pass| pass.exit(Outcome::Ignored))).await;
        }
        turn
    }

    async fn forget(&self, gate: &Gate, policy: &gate::Policy) {
        let mut connection = self.bare.clone();
        for targets in self.targets.chunks(100) {
            let mut command = redis::cmd("UNLINK");
            for target in targets {
                command.arg(gate.bare_keys(target, policy));
            }
            // What is left expires by itself.
            connection.send_packed_command(&command).await.ok();
        }
    }

    /// One key above its limit, from many callers: what passes is what the limit says.
    async fn hot_key(&self) -> Row {
        let (limiter, policy) = (Limiter::new(&self.backend), plain(HOT_PER_SECOND));
        let time = self.turn.max(Duration::from_secs(2));
        let turn = crowd(DEPTH, time, (limiter, self.targets[1].clone()), |(limiter, key), _| async move {
            limiter.check(&key, &policy, NonZeroU64::MIN).await.is_allowed()
        })
        .await;
        let owed = HOT_PER_SECOND as f64 * turn.elapsed_us as f64 / 1e6;
        let bound = owed + HOT_PER_SECOND as f64;
        let over_under = Some(over_under(turn.admitted, bound, owed));
        Row { over_under, ..row(format!("one hot key, {HOT_PER_SECOND}/s allowed, {DEPTH} callers"), &turn) }
    }

    /// A refused key, asked again and again: answered here.
    async fn denied(&self, entries_per_second: f64) -> Result<Row, BenchError> {
        let limiter = Limiter::new(&self.backend);
        let hourly = Policy::new(Algorithm::Gcra, 1, Duration::from_secs(3_600))?;
        let key = Key::new("denied")?;
        limiter.check(&key, &hourly, NonZeroU64::MIN).await;
        let before = self.scripts_run().await?;
        let turn = crowd(1, self.turn, (limiter.clone(), key.clone()), |(limiter, key), _| async move {
            limiter.check(&key, &hourly, NonZeroU64::MIN).await.is_allowed()
        })
        .await;
        let asked = self.scripts_run().await?.saturating_sub(before);
        limiter.reset(&key, &hourly).await;
        let times = turn.per_second() / entries_per_second;
        Ok(Row {
            against: Some(("enter, above".to_owned(), times)),
            over_under: Some((100.0 * turn.admitted as f64, 0.0)),
            ..row(format!("a denied hot key; {asked} scripts run meanwhile"), &turn)
        })
    }

    async fn bytes_per_key(&self, count: usize) -> Result<Row, BenchError> {
        let limiter = Limiter::new(&self.backend);
        let daily = Policy::new(Algorithm::Gcra, 10, Duration::from_secs(86_400))?;
        let keys = (0..count).map(|n| Key::new(format!("key-{n}"))).collect::<Result<Vec<_>, _>>()?;
        let before = self.info("memory", "used_memory:").await?;
        for chunk in keys.chunks(DEPTH) {
            let checks = chunk.iter().map(|key| limiter.check(key, &daily, NonZeroU64::MIN));
            futures_util::future::join_all(checks).await;
        }
        let after = self.info("memory", "used_memory:").await?;
        for chunk in keys.chunks(DEPTH) {
            futures_util::future::join_all(chunk.iter().map(|key| limiter.reset(key, &daily))).await;
        }
        let text_bytes: usize = keys.iter().map(|key| limiter.bare_name(key, &daily).len()).sum();
        let taken = after.saturating_sub(before).saturating_sub(text_bytes as u64);
        Ok(Row {
            what: format!("GCRA in Redis, {count} keys"),
            figure: taken as f64 / count.max(1) as f64,
            unit: "bytes per key beside the key",
            ..Row::default()
        })
    }

    async fn scripts_run(&self) -> Result<u64, BenchError> {
        self.info("commandstats", "cmdstat_evalsha:calls=").await
    }

    async fn info(&self, section: &str, field: &str) -> Result<u64, BenchError> {
        let info: String = redis::cmd("INFO").arg(section).query_async(&mut self.bare.clone()).await?;
        let after = info.split(field).nth(1).unwrap_or_default();
        let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
        Ok(digits.parse().unwrap_or(0))
    }
}

fn is_answer(reply: Result<redis::Value, redis::RedisError>) -> bool {
    matches!(reply, Ok(redis::Value::Array(_)))
}

fn plain(per_second: u64) -> Policy {
    Policy::new(Algorithm::Gcra, per_second, Duration::from_secs(1)).expect("a plain limit is valid")
}

fn guarded() -> gate::Policy {
    gate::Policy::default()
        .rate(plain(1_000_000))
        .circuit(breaker::Policy::default())
        .concurrency(semaphore::Policy::new(1_000_000, Duration::from_secs(600)).expect("a plain limit is valid"))
}

fn scatter(n: u64) -> usize {
    usize::try_from(n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40).unwrap_or(0) % TARGETS
}

fn chunks<T>(all: Vec<T>, size: usize) -> Vec<Vec<T>> {
    let mut all = all.into_iter();
    std::iter::from_fn(|| Some(all.by_ref().take(size).collect::<Vec<_>>()).filter(|chunk| !chunk.is_empty())).collect()
}

/// Many callers that each repeat an operation for `time`, all in this task.
async fn crowd<C, F>(callers: usize, time: Duration, context: C, operation: impl Fn(C, u64) -> F) -> Turn
where
    C: Clone,
    F: Future<Output = bool>,
{
    let start_us = Clock::System.now_us();
    let one = async |caller: usize| {
        let mut turn = Turn::default();
        loop {
            let before = nanos();
            let n = turn.operations * callers as u64 + caller as u64;
            turn.admitted += u64::from(operation(context.clone(), n).await);
            turn.operations += 1;
            if turn.operations.is_multiple_of(4) || callers == 1 {
                turn.samples.push(nanos() - before);
            }
            if turn.operations.is_multiple_of(64) {
                tokio::task::yield_now().await;
            }
            if Clock::System.now_us() - start_us >= micros(time) {
                return turn;
            }
        }
    };
    let turns = futures_util::future::join_all((0..callers).map(one)).await;
    let turn = turns.into_iter().reduce(Turn::join).unwrap_or_default();
    Turn { elapsed_us: Clock::System.now_us() - start_us, ..turn }
}

fn row(what: String, turn: &Turn) -> Row {
    let (p50, p99) = (turn.quantile(0.5), turn.quantile(0.99));
    Row { what, figure: turn.per_second(), unit: "/s", p50, p99, ..Row::default() }
}

fn compare(what: &str, ours: &Turn, against: &str, bare: &Turn) -> [Row; 2] {
    // Nothing is above its limit here: whatever did not pass is missing.
    let missing = |turn: &Turn| 100.0 * (turn.operations - turn.admitted) as f64 / turn.operations.max(1) as f64;
    let times = ours.per_second() / bare.per_second();
    let base = Row { over_under: Some((0.0, missing(bare))), ..row(against.to_owned(), bare) };
    let against = Some((against.to_owned(), times));
    [base, Row { against, over_under: Some((0.0, missing(ours))), ..row(what.to_owned(), ours) }]
}
