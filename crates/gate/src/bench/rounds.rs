//! Running something for a while and keeping count.

use std::time::Duration;

use crate::Clock;
use crate::clock::micros;

/// What a turn of work came to.
#[derive(Clone, Debug, Default)]
pub(super) struct Turn {
    pub(super) operations: u64,
    pub(super) admitted: u64,
    pub(super) elapsed_us: u64,
    /// A sample of single operations, in nanoseconds.
    pub(super) samples: Vec<u64>,
}

impl Turn {
    pub(super) fn per_second(&self) -> f64 {
        self.operations as f64 * 1e6 / self.elapsed_us.max(1) as f64
    }

    pub(super) fn join(mut self, other: Turn) -> Turn {
        self.operations += other.operations;
        self.admitted += other.admitted;
        self.elapsed_us = self.elapsed_us.max(other.elapsed_us);
        self.samples.extend(other.samples);
        self
    }

    /// The time below which this part of the operations stayed.
    pub(super) fn quantile(&self, part: f64) -> Option<Duration> {
        let mut samples = self.samples.clone();
        samples.sort_unstable();
        let index = ((samples.len() as f64 - 1.0) * part).max(0.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index below the length")]
        samples.get(index as usize).map(|nanos| Duration::from_nanos(*nanos))
    }
}

/// Calls `operation` on one thread for `time`; it answers whether it was admitted.
pub(super) fn spin(time: Duration, mut operation: impl FnMut(u64) -> bool) -> Turn {
    const BETWEEN_LOOKS: u64 = 256;
    let (start_us, mut turn) = (Clock::System.now_us(), Turn::default());
    loop {
        let before = nanos();
        turn.admitted += u64::from(operation(turn.operations));
        turn.samples.push(nanos() - before);
        for n in 1..BETWEEN_LOOKS {
            turn.admitted += u64::from(operation(turn.operations + n));
        }
        turn.operations += BETWEEN_LOOKS;
        turn.elapsed_us = Clock::System.now_us() - start_us;
        if turn.elapsed_us >= micros(time) {
            return turn;
        }
    }
}

/// The fastest of several turns.
pub(super) fn best(turns: impl IntoIterator<Item = Turn>) -> Turn {
    turns.into_iter().max_by(|a, b| a.per_second().total_cmp(&b.per_second())).unwrap_or_default()
}

pub(super) fn nanos() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
    let now = std::time::Instant::now();
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    u64::try_from(now.duration_since(*START.get_or_init(|| now)).as_nanos()).unwrap_or(u64::MAX)
}

/// Percent admitted above the bound, and percent missing below what was owed.
pub(super) fn over_under(admitted: u64, bound: f64, owed: f64) -> (f64, f64) {
    let admitted = admitted as f64;
    (((admitted - bound) / bound * 100.0).max(0.0), ((owed - admitted) / owed * 100.0).max(0.0))
}
