//! Limits as they are written, checked once, so that the rules cannot meet a zero, an overflow or a lost fraction.
//!
//! Rates are kept as a reduced ratio of integers: one token is `token` units, one microsecond brings `per_us` units.
//! Nothing is ever rounded while counting. All products stay below 2^52, so Lua's doubles count exactly too.

use std::time::Duration;

use super::calendar::Calendar;
use crate::Error;
use crate::clock::micros;
use crate::fallback::Mode;

/// Products of the rules stay below this; Lua counts exactly up to 2^53.
const LARGEST_PRODUCT: u64 = 1 << 52;
/// About a year.
const LONGEST_WINDOW_US: u64 = 366 * 24 * 3_600 * 1_000_000;
/// An exact log keeps an entry per call.
const MOST_LOGGED: u64 = 100_000;
/// A rate may be rounded down by at most one part in this many when it cannot be kept exactly.
const LEAST_PRECISION: u64 = 10_000;
/// Steps into which a sliding counter divides its window.
const COUNTER_STEPS: u64 = 1 << 20;

/// How a limit counts. Each line says what it lets through in the worst case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Exact: at most `limit` in any window. Keeps one entry per call.
    SlidingLog,
    /// At most `burst + limit · T / window` in any time `T`. Unused calls are saved up to `burst`.
    TokenBucket,
    /// Same bound as the token bucket, from one timestamp. The cheapest.
    Gcra,
    /// At most `limit` per aligned window; over an edge up to `2 · limit` if the window before was uneven.
    SlidingCounter,
    /// At most `limit` per aligned window, so `2 · limit` around an edge.
    FixedWindow,
    /// Fills with each call and drains evenly: at most `burst + limit · T / window` in any time `T`.
    LeakyBucket,
}

/// One limit: `limit` per `window`, counted by `algorithm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    pub(super) algorithm: Algorithm,
    pub(super) limit: u64,
    pub(super) window_us: u64,
    /// What can pass at once at most.
    pub(super) capacity: u64,
    /// Of a sliding log: how many may go within its pace.
    pub(super) at_once: u64,
    pub(super) rate: Rate,
    /// Where the windows of a fixed window begin and end, if not at multiples of its length.
    pub(super) calendar: Option<Calendar>,
    pub(super) without_redis: Mode,
}

/// Units per token and per microsecond; see the file's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Rate {
    pub(super) token: u64,
    pub(super) per_us: u64,
    /// How long one token and a whole burst take; divided here once, because a division costs more than the rest of a
    /// decision.
    pub(super) one: Span,
    pub(super) full: Span,
}

/// Microseconds and `fraction / per_us` of one more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Span {
    pub(super) us: u64,
    pub(super) fraction: u64,
}

impl Policy {
    /// The largest limit, and the largest cost that makes a difference.
    pub const MOST_LIMIT: u64 = 1 << 32;

    /// `limit` calls per `window`, all of which may come at once.
    pub fn new(algorithm: Algorithm, limit: u64, window: Duration) -> Result<Policy, Error> {
        Policy::build(algorithm, limit, micros(window), limit, Mode::default())
    }

    /// A sliding log whose calls are spread over the window: `at_once` may go together, then the next wait for them, and all
    /// of the limit can be used at about its own pace. What is sent in one heap arrives as it likes, and whoever receives it
    /// may see more in a second than was let go in any.
    pub fn spread(limit: u64, window: Duration, at_once: u64) -> Result<Policy, Error> {
        check_range("calls at once", at_once, limit)?;
        Ok(Policy { at_once, ..Policy::new(Algorithm::SlidingLog, limit, window)? })
    }

    /// A quota: `limit` calls in each window of a calendar, a fixed window whose edges are real days, weeks or months.
    /// `edges_s` are the beginnings of four windows in a row, in seconds since the Unix epoch; the second one's is now.
    pub fn calendar(limit: u64, edges_s: [u64; 4]) -> Result<Policy, Error> {
        let calendar = Calendar::new(edges_s)?;
        let policy = Policy::build(Algorithm::FixedWindow, limit, calendar.current_us(), limit, Mode::default())?;
        Ok(Policy { calendar: Some(calendar), ..policy })
    }

    /// Lets `burst` calls pass at once instead of `limit`; counts for token bucket, GCRA and leaky bucket.
    pub fn burst(self, burst: u64) -> Result<Policy, Error> {
        match self.algorithm {
            Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket => {
                Policy::build(self.algorithm, self.limit, self.window_us, burst, self.without_redis)
            }
            Algorithm::SlidingLog | Algorithm::SlidingCounter | Algorithm::FixedWindow => Err(Error::BurstOfWindow),
        }
    }

    /// What to do while Redis cannot decide.
    #[must_use]
    pub fn without_redis(self, mode: Mode) -> Policy {
        Policy { without_redis: mode, ..self }
    }

    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    pub fn window(&self) -> Duration {
        Duration::from_micros(self.window_us)
    }

    /// The largest cost that can ever pass.
    #[inline]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// This process's part when `replicas` decide alone: together they stay within the limit.
    pub(super) fn share(&self, replicas: u32) -> Policy {
        let replicas = u64::from(replicas.max(1));
        if replicas == 1 {
            return *self;
        }
        if self.calendar.is_some() {
            let limit = (self.limit / replicas).max(1);
            return Policy { limit, capacity: limit, at_once: limit, ..*self };
        }
        // One call in so long, at the share's rate; one a year at least.
        let slow_us = self.window_us.saturating_mul(replicas).div_ceil(self.limit).min(LONGEST_WINDOW_US);
        let shared = match self.algorithm {
            Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket => {
                let (longer_us, burst) = (self.window_us.saturating_mul(replicas), self.capacity.div_ceil(replicas));
                Policy::build(self.algorithm, self.limit, longer_us, burst, self.without_redis)
                    .or_else(|_| Policy::build(self.algorithm, 1, slow_us, burst, self.without_redis))
                    .or_else(|_| Policy::build(self.algorithm, 1, slow_us, 1, self.without_redis))
            }
            Algorithm::SlidingLog | Algorithm::SlidingCounter | Algorithm::FixedWindow => {
                let (limit, window_us) =
                    if self.limit >= replicas { (self.limit / replicas, self.window_us) } else { (1, slow_us) };
                let at_once = if self.is_spread() { (self.at_once / replicas).clamp(1, limit) } else { limit };
                Policy::build(self.algorithm, limit, window_us, limit, self.without_redis)
                    .map(|share| Policy { at_once, ..share })
            }
        };
        // Never: one call in at most a year can be counted.
        shared.unwrap_or(*self)
    }

    /// The numbers a script needs: see `rules.lua`.
    pub(super) fn script_args(&self) -> [u64; 4] {
        if let Some(calendar) = &self.calendar {
            let [first_s, minutes] = calendar.script_args();
            return [7, self.limit, first_s, minutes];
        }
        match self.algorithm {
            Algorithm::Gcra => [1, self.rate.token, self.rate.per_us, self.capacity],
            Algorithm::TokenBucket => [2, self.rate.token, self.rate.per_us, self.capacity],
            Algorithm::LeakyBucket => [3, self.rate.token, self.rate.per_us, self.capacity],
            Algorithm::FixedWindow => [4, self.limit, self.window_us, 0],
            Algorithm::SlidingCounter => [5, self.limit, self.window_us, self.step_us()],
            Algorithm::SlidingLog => [6, self.limit, self.window_us, if self.is_spread() { self.at_once } else { 0 }],
        }
    }

    fn is_spread(&self) -> bool {
        self.at_once < self.limit
    }

    /// How long those that go at once hold up the next: a tenth sooner than the limit needs, so that what was late is caught
    /// up with. Zero where the window alone decides.
    pub(super) fn pace_us(&self) -> u64 {
        if self.is_spread() { 9 * self.window_us / (10 * (self.limit / self.at_once)) } else { 0 }
    }

    /// The kind in the Redis key: each algorithm stores another shape, so each has its own name.
    pub(crate) fn kind(&self) -> &'static str {
        if self.calendar.is_some() {
            return "quota";
        }
        match self.algorithm {
            Algorithm::SlidingLog => "ratelimit",
            Algorithm::TokenBucket => "bucket",
            Algorithm::Gcra => "gcra",
            Algorithm::SlidingCounter => "counter",
            Algorithm::FixedWindow => "window",
            Algorithm::LeakyBucket => "leaky",
        }
    }

    /// A sliding counter's step: the window in at most 2^20 parts.
    pub(super) fn step_us(&self) -> u64 {
        self.window_us.div_ceil(COUNTER_STEPS)
    }

    pub(super) fn capacity_units(&self) -> u64 {
        self.capacity * self.rate.token
    }

    fn build(algorithm: Algorithm, limit: u64, window_us: u64, capacity: u64, mode: Mode) -> Result<Policy, Error> {
        check_range("limit", limit, Policy::MOST_LIMIT)?;
        check_range("window in microseconds", window_us, LONGEST_WINDOW_US)?;
        check_range("burst", capacity, Policy::MOST_LIMIT)?;
        if algorithm == Algorithm::SlidingLog {
            check_range("limit of a sliding log", limit, MOST_LOGGED)?;
        }
        let rate = match algorithm {
            Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket => Rate::new(limit, window_us, capacity)?,
            // Windows count calls and know no rate.
            Algorithm::SlidingLog | Algorithm::SlidingCounter | Algorithm::FixedWindow => Rate::NONE,
        };
        Ok(Policy { algorithm, limit, window_us, capacity, at_once: limit, rate, calendar: None, without_redis: mode })
    }
}

impl Rate {
    const NONE: Rate =
        Rate { token: 1, per_us: 1, one: Span { us: 0, fraction: 0 }, full: Span { us: 0, fraction: 0 } };

    fn new(limit: u64, window_us: u64, capacity: u64) -> Result<Rate, Error> {
        let divisor = gcd(limit, window_us);
        let (mut token, mut per_us) = (window_us / divisor, limit / divisor);
        while token.checked_mul(capacity).is_none_or(|units| units > LARGEST_PRODUCT) {
            // Rounded so that the rate becomes slower, never faster.
            (token, per_us) = (token.div_ceil(2), per_us / 2);
            if per_us < LEAST_PRECISION {
                return Err(Error::NotCountable { limit, window: Duration::from_micros(window_us) });
            }
        }
        let span = |units: u64| Span { us: units / per_us, fraction: units % per_us };
        Ok(Rate { token, per_us, one: span(token), full: span(token * capacity) })
    }

    /// How long `tokens` take.
    #[inline]
    pub(super) fn span(&self, tokens: u64) -> Span {
        if tokens == 1 {
            return self.one;
        }
        self.span_of(tokens * self.token)
    }

    #[inline]
    pub(super) fn span_of(&self, units: u64) -> Span {
        Span { us: units / self.per_us, fraction: units % self.per_us }
    }

    /// How many whole tokens come in `units`.
    #[inline]
    pub(super) fn tokens(&self, units: u64) -> u64 {
        // Exact: both are below 2^53, so the rounding error is smaller than the distance to the next whole number.
        // Half the time of an integer division.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 <= quotient < 2^53")]
        let tokens = (units as f64 / self.token as f64) as u64;
        tokens
    }
}

fn check_range(field: &'static str, value: u64, most: u64) -> Result<(), Error> {
    match value {
        0 => Err(Error::TooSmall { field, least: 1 }),
        value if value > most => Err(Error::TooLarge { field, most }),
        _ => Ok(()),
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
