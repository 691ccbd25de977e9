//! A rolling window of calls in ten buckets: pure counting, no clock.
//!
//! A bucket is numbered by `now / width`, so two processes that share a clock share the buckets. A bucket whose number is
//! not among the last ten counts for nothing: old ones age out, and ones "from the future" (the clock was set back) are
//! dropped instead of lingering. The window therefore covers between nine tenths and the whole of its length.

/// How many buckets make a window. `rules.lua` knows the same number.
pub(crate) const BUCKETS: u64 = 10;

/// What happened in one tenth of the window, or in all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that ended, whatever their outcome; ignored calls are not here.
    pub calls: u64,
    /// Calls that failed.
    pub failures: u64,
    /// Calls that took too long, failed or not.
    pub slow: u64,
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.calls += other.calls;
        self.failures += other.failures;
        self.slow += other.slow;
    }
}

/// Successes of one process that were not sent yet: how many, and how many buckets ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Past {
    pub(crate) age: u64,
    pub(crate) calls: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Window {
    buckets: Vec<(u64, Counts)>,
}

impl Window {
    /// Adds to the bucket `age` buckets before now; what is older than the window is forgotten.
    pub(crate) fn add(&mut self, width_us: u64, now_us: u64, age: u64, counts: Counts) {
        let current = now_us / width_us;
        self.buckets.retain(|(number, _)| is_live(*number, current));
        let Some(number) = current.checked_sub(age).filter(|number| is_live(*number, current)) else { return };
        match self.buckets.iter_mut().find(|(known, _)| *known == number) {
            Some((_, bucket)) => bucket.add(counts),
            None => self.buckets.push((number, counts)),
        }
    }

    pub(crate) fn total(&self, width_us: u64, now_us: u64) -> Counts {
        let current = now_us / width_us;
        let mut total = Counts::default();
        for (_, counts) in self.buckets.iter().filter(|(number, _)| is_live(*number, current)) {
            total.add(*counts);
        }
        total
    }

    pub(crate) fn is_empty(&self, width_us: u64, now_us: u64) -> bool {
        let current = now_us / width_us;
        !self.buckets.iter().any(|(number, _)| is_live(*number, current))
    }
}

fn is_live(number: u64, current: u64) -> bool {
    number <= current && current - number < BUCKETS
}
