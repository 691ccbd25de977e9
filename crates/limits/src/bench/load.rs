//! Loads over connections that stay open: closed loops that ask as fast as they are answered, and a schedule that does not
//! wait for the answers.

use std::{future::Future, time::Duration};

use futures_util::future::BoxFuture;
use gate::bench::Row;
use tokio::{
    sync::mpsc::{UnboundedSender, unbounded_channel},
    task::JoinSet,
    time::Instant,
};

use super::{BenchError, Options};

/// What 99 of 100 calls may take at half load.
const LONGEST: Duration = Duration::from_millis(2);
/// How often a schedule sends what is due. Each call at its own moment would wake the load 20,000 times a second, and take a
/// sixth of two cores from those it measures.
const TICK: Duration = Duration::from_micros(500);

/// What one round of one connection came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Round {
    pub(super) asked: u64,
    pub(super) admitted: u64,
}

/// A connection that asks.
pub(super) trait Load: Send + 'static {
    /// One round: ask, and wait for all answers. `number` chooses the key.
    fn round(&mut self, number: u64) -> impl Future<Output = Result<Round, BenchError>> + Send;
}

/// What a turn of all connections came to.
#[derive(Clone, Debug, Default)]
pub(super) struct Turn {
    pub(super) asked: u64,
    pub(super) admitted: u64,
    pub(super) elapsed: Duration,
    rounds: Vec<Duration>,
}

impl Turn {
    pub(super) fn per_second(&self) -> f64 {
        self.asked as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    pub(super) fn quantile(&self, part: f64) -> Option<Duration> {
        let mut rounds = self.rounds.clone();
        rounds.sort_unstable();
        let index = ((rounds.len() as f64 - 1.0) * part).max(0.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index below the length")]
        rounds.get(index as usize).copied()
    }

    fn add(&mut self, round: Round, took: Duration) {
        self.asked += round.asked;
        self.admitted += round.admitted;
        self.rounds.push(took);
    }

    /// A row of the table. All keys are far below their limits, so what was refused is missing.
    pub(super) fn row(&self, what: &str, against: Option<(&str, f64)>) -> Row {
        let missing = 100.0 * (self.asked - self.admitted) as f64 / self.asked.max(1) as f64;
        Row {
            what: what.to_owned(),
            figure: self.per_second(),
            unit: "/s",
            against: against.map(|(peer, per_second)| (peer.to_owned(), self.per_second() / per_second)),
            p50: self.quantile(0.5),
            p99: self.quantile(0.99),
            over_under: Some((0.0, missing)),
        }
    }

    /// A row of one key far above its limit: what passed is what the limit owes, up to its burst.
    pub(super) fn hot_row(&self, what: &str, limit_per_second: u64) -> Row {
        let owed = limit_per_second as f64 * self.elapsed.as_secs_f64();
        let (bound, admitted) = (owed + limit_per_second as f64, self.admitted as f64);
        let over_under = (((admitted - bound) / bound * 100.0).max(0.0), ((owed - admitted) / owed * 100.0).max(0.0));
        Row { over_under: Some(over_under), ..self.row(what, None) }
    }
}

/// One side of a comparison: its connections, and its best turn so far.
pub(super) struct Side<L> {
    loads: Vec<L>,
    pub(super) best: Turn,
}

impl<L: Load> Side<L> {
    pub(super) fn new(loads: Vec<L>) -> Side<L> {
        Side { loads, best: Turn::default() }
    }

    /// Half of the best turn's speed, on a schedule. The best of `turns` counts here too.
    pub(super) async fn half_load(&mut self, what: &str, time: Duration, turns: usize) -> Result<Row, BenchError> {
        let pause = Duration::from_secs_f64(2.0 / self.best.per_second().max(1.0));
        let mut best = None;
        for _ in 0..turns {
            let (loads, turn) = on_schedule(std::mem::take(&mut self.loads), pause, time).await?;
            self.loads = loads;
            let p99 = turn.quantile(0.99).unwrap_or(Duration::MAX);
            if best.as_ref().is_none_or(|(least, _)| p99 < *least) {
                best = Some((p99, turn));
            }
        }
        let (p99, turn) = best.unwrap_or_default();
        let times = p99.as_secs_f64() / LONGEST.as_secs_f64();
        let against = Some((format!("p99 of {LONGEST:?}: at most 1"), times));
        Ok(Row { against, ..turn.row(&format!("{what}, half of that on a schedule"), None) })
    }
}

/// A side, whatever it asks with.
pub(super) trait Contender {
    /// One more turn, as fast as it goes; the best one counts.
    fn turn(&mut self, time: Duration) -> BoxFuture<'_, Result<(), BenchError>>;
}

impl<L: Load> Contender for Side<L> {
    fn turn(&mut self, time: Duration) -> BoxFuture<'_, Result<(), BenchError>> {
        Box::pin(async move {
            let (loads, turn) = turn(std::mem::take(&mut self.loads), time).await?;
            self.loads = loads;
            if turn.per_second() > self.best.per_second() {
                self.best = turn;
            }
            Ok(())
        })
    }
}

/// All sides in turn, so that what else the machine does meets each of them.
pub(super) async fn compete(options: &Options, sides: &mut [&mut dyn Contender]) -> Result<(), BenchError> {
    for _ in 0..options.turns {
        for side in &mut *sides {
            side.turn(options.turn).await?;
        }
    }
    Ok(())
}

/// All connections at once, each in a task of its own; each asks again as soon as it is answered.
pub(super) async fn turn<L: Load>(loads: Vec<L>, time: Duration) -> Result<(Vec<L>, Turn), BenchError> {
    let start = Instant::now();
    let mut running = JoinSet::new();
    for (index, mut load) in loads.into_iter().enumerate() {
        running.spawn(async move {
            let (mut own, mut number) = (Turn::default(), first_number(index));
            while start.elapsed() < time {
                let asked = Instant::now();
                let round = load.round(number).await?;
                own.add(round, asked.elapsed());
                number = number.wrapping_add(round.asked);
            }
            Ok((load, own))
        });
    }
    gather(running, start).await
}

/// One connection after the other is told to ask, whether or not the last answers are there; those of one tick together. A call
/// that starts late counts from when it was due.
async fn on_schedule<L: Load>(loads: Vec<L>, pause: Duration, time: Duration) -> Result<(Vec<L>, Turn), BenchError> {
    let start = Instant::now();
    let (mut running, mut lanes) = (JoinSet::new(), Vec::with_capacity(loads.len()));
    for (index, mut load) in loads.into_iter().enumerate() {
        let (lane, mut dues) = unbounded_channel::<Instant>();
        lanes.push(lane);
        running.spawn(async move {
            let (mut own, mut number) = (Turn::default(), first_number(index));
            while let Some(due) = dues.recv().await {
                let round = load.round(number).await?;
                own.add(round, due.elapsed());
                number = number.wrapping_add(round.asked);
            }
            Ok((load, own))
        });
    }
    let pacer = tokio::task::spawn_blocking(move || pace(&lanes, start, pause, time));
    let gathered = gather(running, start).await;
    pacer.await.map_err(|error| BenchError::Io(error.into()))?;
    gathered
}

/// On a thread of its own: the runtime's timers are as coarse as a millisecond.
fn pace(lanes: &[UnboundedSender<Instant>], start: Instant, pause: Duration, time: Duration) {
    let (mut due, mut sent) = (start, 0.0);
    let mut lanes = lanes.iter().cycle();
    while due < start + time {
        while let Some(early) = due.checked_duration_since(Instant::now()).filter(|early| !early.is_zero()) {
            std::thread::park_timeout(early);
        }
        due += TICK;
        let owed = (due - start).as_secs_f64() / pause.as_secs_f64();
        while sent < owed {
            sent += 1.0;
            if lanes.next().is_none_or(|lane| lane.send(due - TICK).is_err()) {
                return;
            }
        }
    }
}

async fn gather<L: Load>(
    mut running: JoinSet<Result<(L, Turn), BenchError>>,
    start: Instant,
) -> Result<(Vec<L>, Turn), BenchError> {
    let (mut loads, mut all) = (Vec::new(), Turn::default());
    while let Some(done) = running.join_next().await {
        let (load, own) = done.map_err(|error| BenchError::Io(error.into()))??;
        loads.push(load);
        all.asked += own.asked;
        all.admitted += own.admitted;
        all.rounds.extend(own.rounds);
    }
    all.elapsed = start.elapsed();
    Ok((loads, all))
}

/// Keys that loads spread over.
pub(super) const KEYS: u64 = 10_000;

pub(super) fn key(number: u64) -> u64 {
    (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % KEYS
}

/// Connections begin far from each other.
fn first_number(connection: usize) -> u64 {
    (connection as u64).wrapping_mul(0x9E37_79B9)
}
