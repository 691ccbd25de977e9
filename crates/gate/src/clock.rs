//! The one place that reads a clock. Time is microseconds since the Unix epoch, in a `u64`.
//!
//! Shared decisions use Redis' clock: scripts get [`Clock::server_now`], which is empty in production.
//! [`Clock::Manual`] lets tests set the time of both sides, so that no test sleeps.

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// Starts at the wall clock's time and never goes back: a stepped wall clock cannot reopen a window. Read from the
/// processor's own counter where there is one, because in memory the clock is a third of a decision.
struct Anchor {
    unix_us: u64,
    counter: quanta::Clock,
    start: u64,
}

static ANCHOR: LazyLock<Anchor> = LazyLock::new(|| {
    let counter = quanta::Clock::new();
    #[expect(clippy::disallowed_methods, reason = "this is the crate's clock")]
    let wall = SystemTime::now();
    let unix_us = wall.duration_since(SystemTime::UNIX_EPOCH).map_or(0, micros);
    Anchor { unix_us, start: counter.raw(), counter }
});

/// Where `now` comes from.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// This machine's monotonic clock here, Redis' own clock in scripts.
    #[default]
    System,
    /// Set by hand, in microseconds; the same time is sent to Redis.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// A clock that stands at `now_us` until it is moved.
    pub fn manual(now_us: u64) -> Clock {
        Clock::Manual(Arc::new(AtomicU64::new(now_us)))
    }

    /// This process's time in microseconds.
    #[inline]
    pub fn now_us(&self) -> u64 {
        match self {
            Clock::System => {
                let anchor = &*ANCHOR;
                anchor.unix_us + anchor.counter.delta_as_nanos(anchor.start, anchor.counter.raw()) / 1_000
            }
            Clock::Manual(now_us) => now_us.load(Ordering::Acquire),
        }
    }

    /// Moves a manual clock forward; a system clock moves by itself.
    pub fn advance(&self, by: Duration) {
        if let Clock::Manual(now_us) = self {
            now_us.fetch_add(micros(by), Ordering::AcqRel);
        }
    }

    /// Sets a manual clock, also backwards: that is what a new Redis primary may do.
    pub fn set_us(&self, to_us: u64) {
        if let Clock::Manual(now_us) = self {
            now_us.store(to_us, Ordering::Release);
        }
    }

    /// The `now` argument of a script: empty, so that Redis' own clock decides, or the manual time.
    pub(crate) fn server_now(&self) -> String {
        match self {
            Clock::System => String::new(),
            Clock::Manual(_) => self.now_us().to_string(),
        }
    }
}

/// Whole microseconds of a duration, saturating.
pub(crate) fn micros(duration: Duration) -> u64 {
    // Not `as_micros`: that is arithmetic in 128 bits, on every reading of the clock.
    duration.as_secs().saturating_mul(1_000_000).saturating_add(u64::from(duration.subsec_micros()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_starts_at_unix_time_and_never_goes_back() {
        let first = Clock::System.now_us();
        assert!(first > 1_700_000_000_000_000, "{first} is not a time of this century in microseconds");
        assert!(Clock::System.now_us() >= first);
    }

    #[test]
    fn a_manual_clock_moves_only_by_hand_and_tells_scripts_its_time() {
        let clock = Clock::manual(5);
        assert_eq!((clock.now_us(), clock.server_now().as_str()), (5, "5"));
        clock.advance(Duration::from_millis(1));
        assert_eq!(clock.now_us(), 1_005);
        assert_eq!(Clock::System.server_now(), "");
    }
}
