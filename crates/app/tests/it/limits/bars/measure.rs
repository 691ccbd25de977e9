//! What answered checks prove.
//!
//! A check was decided between the moment it was sent and the moment its answer came. So a window that holds more whole
//! calls than a limit allows proves an excess, however slow the machine is; nothing else does. Times are the machine's wall
//! clock, because Redis decides by it: by another clock, which is slewed differently, a second is not a second.

use std::{
    collections::VecDeque,
    io::Write,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::fleet::{BURST, LIMIT, REPLICAS};
use crate::support::size;

const SECOND_US: u64 = 1_000_000;

/// One answered check.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checked {
    pub(super) replica: usize,
    /// Its place in the load.
    pub(super) turn: usize,
    pub(super) sent_us: u64,
    pub(super) answered_us: u64,
    pub(super) is_allowed: bool,
    pub(super) is_degraded: bool,
}

impl Checked {
    pub(super) fn latency(&self) -> Duration {
        Duration::from_micros(self.answered_us.saturating_sub(self.sent_us))
    }
}

pub(super) fn wall_us() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap()
}

pub(super) fn allowed(calls: &[Checked]) -> u64 {
    calls.iter().filter(|call| call.is_allowed).count() as u64
}

pub(super) fn degraded(calls: &[Checked]) -> usize {
    calls.iter().filter(|call| call.is_degraded).count()
}

/// The calls that were sent in this time.
pub(super) fn between(calls: &[Checked], from_us: u64, to_us: u64) -> Vec<Checked> {
    calls.iter().filter(|call| (from_us..to_us).contains(&call.sent_us)).copied().collect()
}

pub(super) fn since(calls: &[Checked], from_us: u64) -> Vec<Checked> {
    between(calls, from_us, u64::MAX)
}

/// From the first call to the last answer.
pub(super) fn span(calls: &[Checked]) -> Duration {
    let first_us = calls.iter().map(|call| call.sent_us).min().unwrap();
    Duration::from_micros(calls.iter().map(|call| call.answered_us).max().unwrap() - first_us)
}

/// The latency that so many of a hundred calls stayed below.
pub(super) fn percentile(calls: &[Checked], percent: usize) -> Duration {
    let mut all: Vec<Duration> = calls.iter().map(Checked::latency).collect();
    all.sort_unstable();
    all[(all.len() * percent / 100).min(all.len() - 1)]
}

pub(super) fn p99(calls: &[Checked]) -> Duration {
    percentile(calls, 99)
}

/// What bars of a 99th percentile are judged by: in `make test` the machine may stand still for a moment, and one call in
/// fifty has been under way then.
pub(super) fn most_took(calls: &[Checked]) -> Duration {
    percentile(calls, size(90, 99))
}

/// Can the times of the bars be judged? Not where one call in a hundred takes too long although all is well: then what is
/// counted was asserted before, and the output says that times were not.
pub(super) fn is_quick_machine(well: &[Checked], most: Duration) -> bool {
    let (slow, test) = (p99(well), std::thread::current());
    let is_quick = slow <= most;
    if !is_quick {
        let line =
            format!("{}: times are not judged, a call took {slow:?} while Redis was well", test.name().unwrap_or(""));
        drop(writeln!(std::io::stderr(), "{line}"));
    }
    is_quick
}

/// `factor` × L × t, in whole calls. With bursts and one call per replica this is what the bars allow.
pub(super) fn steady(factor: f64, lasting: Duration) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
    let steady = (factor * LIMIT as f64 * lasting.as_secs_f64()).ceil() as u64;
    steady
}

/// N of the bars: a share is rounded up by a part of a call in every replica.
pub(super) const PER_REPLICA: u64 = REPLICAS as u64;

/// The most calls that were certainly admitted within one second.
pub(super) fn most_in_a_second(calls: &[Checked]) -> u64 {
    let mut admitted: Vec<(u64, u64)> =
        calls.iter().filter(|call| call.is_allowed).map(|call| (call.sent_us, call.answered_us)).collect();
    admitted.sort_unstable();
    let most = admitted.iter().enumerate().map(|(index, (start_us, _))| {
        let end_us = start_us + SECOND_US;
        let inside = admitted[index..].iter().take_while(|(sent_us, _)| *sent_us <= end_us);
        inside.filter(|(_, answered_us)| *answered_us <= end_us).count() as u64
    });
    most.max().unwrap_or(0)
}

/// What a limit of `LIMIT` in any second lets through of these calls: the arithmetic of the rule without a network. Less
/// than L × t where a busy machine did not offer enough.
pub(super) fn due_by_log(calls: &[Checked]) -> u64 {
    let admit = |times_us: Vec<u64>| {
        let mut window = VecDeque::new();
        let admits = |now_us: &u64| {
            while window.front().is_some_and(|first_us| first_us + SECOND_US <= *now_us) {
                window.pop_front();
            }
            let is_free = (window.len() as u64) < LIMIT;
            is_free.then(|| window.push_back(*now_us)).is_some()
        };
        times_us.iter().copied().filter(admits).count() as u64
    };
    at_either_end(calls, admit)
}

/// The same of a bucket that refills with `LIMIT` per second up to `BURST`, or of such a bucket's shares, one per replica.
pub(super) fn due_by_bucket(calls: &[Checked], shares: usize) -> u64 {
    let (per_us, most) = (LIMIT as f64 / shares as f64 / SECOND_US as f64, (BURST as f64 / shares as f64).ceil());
    let admit = |times_us: Vec<u64>| {
        let (mut tokens, mut seen_us) = (most, u64::MAX);
        let admits = |now_us: &u64| {
            tokens = (tokens + now_us.saturating_sub(seen_us) as f64 * per_us).min(most);
            seen_us = *now_us;
            let is_free = tokens >= 1.0;
            tokens -= f64::from(u8::from(is_free));
            is_free
        };
        times_us.iter().copied().filter(admits).count() as u64
    };
    let of_share = |share: usize| -> Vec<Checked> {
        calls.iter().filter(|call| call.replica % shares == share).copied().collect()
    };
    (0..shares).map(|share| at_either_end(&of_share(share), admit)).sum()
}

/// A call is decided between the two ends of its time; what is due at both of them is due.
fn at_either_end(calls: &[Checked], admit: impl Fn(Vec<u64>) -> u64) -> u64 {
    let at = |end: fn(&Checked) -> u64| {
        let mut times_us: Vec<u64> = calls.iter().map(end).collect();
        times_us.sort_unstable();
        admit(times_us)
    };
    at(|call| call.sent_us).min(at(|call| call.answered_us))
}

/// Second by second: asked, admitted, without Redis.
pub(super) fn timeline(calls: &[Checked]) -> Vec<[usize; 3]> {
    let first_us = calls.iter().map(|call| call.sent_us).min().unwrap();
    let mut seconds = Vec::new();
    for call in calls {
        let second = usize::try_from((call.answered_us - first_us) / SECOND_US).unwrap();
        if seconds.len() <= second {
            seconds.resize(second + 1, [0; 3]);
        }
        let counts = [1, usize::from(call.is_allowed), usize::from(call.is_degraded)];
        seconds[second].iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    seconds
}
