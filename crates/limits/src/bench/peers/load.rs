//! Closed loops: every connection asks, waits for its answers, asks again. Connections stay open between turns.

use std::{future::Future, time::Duration};

use gate::bench::Row;
use tokio::{task::JoinSet, time::Instant};

use super::BenchError;

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

    fn quantile(&self, part: f64) -> Option<Duration> {
        let mut rounds = self.rounds.clone();
        rounds.sort_unstable();
        let index = ((rounds.len() as f64 - 1.0) * part).max(0.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index below the length")]
        rounds.get(index as usize).copied()
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

    /// One more turn; the best one counts.
    pub(super) async fn turn(&mut self, time: Duration) -> Result<(), BenchError> {
        let (loads, turn) = turn(std::mem::take(&mut self.loads), time).await?;
        self.loads = loads;
        if turn.per_second() > self.best.per_second() {
            self.best = turn;
        }
        Ok(())
    }
}

/// All connections at once, each in a task of its own.
pub(super) async fn turn<L: Load>(loads: Vec<L>, time: Duration) -> Result<(Vec<L>, Turn), BenchError> {
    let start = Instant::now();
    let mut running = JoinSet::new();
    for (index, mut load) in loads.into_iter().enumerate() {
        running.spawn(async move {
            let mut own = Turn::default();
            let mut number = (index as u64).wrapping_mul(0x9E37_79B9);
            while start.elapsed() < time {
                let asked = Instant::now();
                let round = load.round(number).await?;
                own.rounds.push(asked.elapsed());
                own.asked += round.asked;
                own.admitted += round.admitted;
                number = number.wrapping_add(round.asked);
            }
            Ok::<_, BenchError>((load, own))
        });
    }
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
