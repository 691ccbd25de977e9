//! Durations by the thousand: a bounded sample of them, and its percentiles.

use std::time::Duration;

/// A sample this large tells the 99.9th percentile; more of them would only cost memory.
const MOST: usize = 100_000;

/// Every duration while there is room, then each of all with the same chance.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    seen: u64,
    kept: Vec<u32>,
    /// Of all: chance may take it out of the sample.
    max: u32,
}

/// In microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Percentiles {
    pub p50: u32,
    pub p95: u32,
    pub p99: u32,
    pub max: u32,
}

impl Samples {
    pub(super) fn add(&mut self, duration: Duration) {
        self.seen += 1;
        let micros = u32::try_from(duration.as_micros()).unwrap_or(u32::MAX);
        self.max = self.max.max(micros);
        if self.kept.len() < MOST {
            self.kept.push(micros);
        } else if let Ok(place) = usize::try_from(fastrand::u64(..self.seen))
            && let Some(kept) = self.kept.get_mut(place)
        {
            *kept = micros;
        }
    }

    /// Of all of these together; `None` if there are none.
    pub(super) fn percentiles<'a>(all: impl IntoIterator<Item = &'a Samples>) -> Option<Percentiles> {
        let (mut sorted, mut max) = (Vec::<u32>::new(), 0_u32);
        for samples in all {
            sorted.extend_from_slice(&samples.kept);
            max = max.max(samples.max);
        }
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        let at = |per_mille: usize| sorted[last * per_mille / 1000];
        Some(Percentiles { p50: at(500), p95: at(950), p99: at(990), max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_all_samples_together() {
        let [mut odd, mut even] = [Samples::default(), Samples::default()];
        for ms in 0..=1000_u64 {
            let samples = if ms % 2 == 0 { &mut even } else { &mut odd };
            samples.add(Duration::from_millis(ms));
        }
        let expected = Percentiles { p50: 500_000, p95: 950_000, p99: 990_000, max: 1_000_000 };
        assert_eq!(Samples::percentiles([&odd, &even]), Some(expected));
        assert_eq!(Samples::percentiles([&Samples::default()]), None);
    }

    #[test]
    fn the_longest_is_told_although_the_sample_has_lost_it() {
        let mut samples = Samples::default();
        samples.add(Duration::from_secs(1));
        samples.kept.fill(1);
        let expected = Percentiles { p50: 1, p95: 1, p99: 1, max: 1_000_000 };
        assert_eq!(Samples::percentiles([&samples]), Some(expected));
    }

    #[test]
    fn a_long_run_keeps_a_bounded_and_fair_sample() {
        let mut samples = Samples::default();
        for _ in 0..MOST {
            samples.add(Duration::from_micros(1));
        }
        for _ in 0..MOST {
            samples.add(Duration::from_micros(2));
        }
        assert_eq!(samples.kept.len(), MOST);
        let late = samples.kept.iter().filter(|micros| **micros == 2).count();
        assert!((MOST * 45 / 100..MOST * 55 / 100).contains(&late), "{late}");
    }
}
