//! Rounds of what is compared: the one in the middle counts, and ratios are taken within a round.

use super::{cpu::Spent, rows::Row};

/// What one round reached.
#[derive(Clone)]
pub(super) struct Run {
    pub per_second: f64,
    /// Once all was accepted: deliveries alone, where enough were left.
    pub rest_per_second: Option<f64>,
    /// Of the processors' time, for so many calls or events.
    pub spent: Spent,
    pub count: u64,
    /// Follows all figures.
    pub note: String,
}

/// Rounds of one fleet, or of one limit.
#[derive(Clone, Default)]
pub(super) struct Rounds(pub Vec<Run>);

impl Rounds {
    /// The one in the middle, and all for a note.
    pub(super) fn row(&self, what: impl Into<String>) -> Row {
        let all: Vec<String> = self.0.iter().map(|run| format!("{:.0}", run.per_second)).collect();
        let mut sorted: Vec<&Run> = self.0.iter().collect();
        sorted.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
        let (per_second, note) =
            sorted.get(sorted.len().saturating_sub(1) / 2).map_or((0.0, ""), |run| (run.per_second, run.note.as_str()));
        let spent = Spent::sum(self.0.iter().map(|run| &run.spent)).each(self.0.iter().map(|run| run.count).sum());
        let spent = if spent.is_empty() { spent } else { format!("; time of the cores for each: {spent}") };
        Row::rate(what, per_second).note(format!("rounds: {} /s{note}{spent}", all.join(", ")))
    }

    /// How many times the other's round each is, in the middle: what runs one after the other has the same machine.
    pub(super) fn times(&self, other: &Rounds) -> f64 {
        let mut times: Vec<f64> =
            self.0.iter().zip(&other.0).map(|(ours, other)| ours.per_second / other.per_second).collect();
        times.sort_by(f64::total_cmp);
        f64::midpoint(times[(times.len() - 1) / 2], times[times.len() / 2])
    }

    /// What each round reached once all was accepted.
    pub(super) fn rest(&self) -> Option<Rounds> {
        self.0.iter().map(|run| run.rest_per_second.map(Run::rate)).collect::<Option<_>>().map(Rounds)
    }

    pub(super) fn add(&mut self, per_second: f64) {
        self.0.push(Run::rate(per_second));
    }
}

impl Run {
    pub(super) fn rate(per_second: f64) -> Run {
        Run { per_second, rest_per_second: None, spent: Spent::default(), count: 0, note: String::new() }
    }
}
