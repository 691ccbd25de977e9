//! Load on one key, open loop, and what the answers prove.
//!
//! A call is known to have been decided between the moment it was sent and the moment its answer came. So a window that
//! holds more whole calls than the limit allows proves an excess, however slow the machine is; nothing else does.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gate::limiter::{Limiter, Policy};
use gate::{Clock, Key};
use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::TaskTracker;

/// One answered call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) sent_us: u64,
    pub(crate) answered_us: u64,
    pub(crate) allowed: bool,
    pub(crate) degraded: bool,
}

impl Call {
    pub(crate) fn latency(&self) -> Duration {
        Duration::from_micros(self.answered_us.saturating_sub(self.sent_us))
    }
}

/// Sends `per_second` calls for a time, each when its moment comes, and waits for the last answer.
pub(crate) async fn offer(
    limiter: &Limiter,
    key: &Key,
    policy: Policy,
    per_second: u64,
    lasting: Duration,
) -> Vec<Call> {
    const TICK: Duration = Duration::from_millis(2);
    let (calls, tasks) = (Arc::new(Mutex::new(Vec::new())), TaskTracker::new());
    let start_us = Clock::System.now_us();
    let mut ticks = interval(TICK);
    // A late tick sends what is due by then: the load does not shrink when the machine is slow.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut sent = 0;
    loop {
        ticks.tick().await;
        let elapsed_us = Clock::System.now_us() - start_us;
        if elapsed_us >= u64::try_from(lasting.as_micros()).expect("tests are short") {
            break;
        }
        while sent < per_second * elapsed_us / 1_000_000 {
            sent += 1;
            let (limiter, key, calls) = (limiter.clone(), key.clone(), Arc::clone(&calls));
            tasks.spawn(async move {
                let sent_us = wall_us();
                let decision = limiter.check(&key, &policy, NonZeroU64::MIN).await;
                let answered_us = wall_us();
                let (allowed, degraded) = (decision.is_allowed(), decision.degraded);
                calls.lock().push(Call { sent_us, answered_us, allowed, degraded });
            });
        }
    }
    tasks.close();
    tasks.wait().await;
    Arc::into_inner(calls).expect("every call has ended").into_inner()
}

/// The machine's wall clock, which Redis decides by too. The crate's own clock starts anew in every process, and a process
/// that is interrupted at that moment stays milliseconds behind the others: their calls could not be put in one order.
pub(crate) fn wall_us() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "calls of several processes are compared")]
    let now = SystemTime::now();
    let since = now.duration_since(SystemTime::UNIX_EPOCH).expect("the wall clock is past 1970");
    u64::try_from(since.as_micros()).expect("microseconds since 1970 fit")
}

pub(crate) fn allowed(calls: &[Call]) -> u64 {
    calls.iter().filter(|call| call.allowed).count() as u64
}

pub(crate) fn degraded(calls: &[Call]) -> u64 {
    calls.iter().filter(|call| call.degraded).count() as u64
}

/// The most calls that were certainly admitted within one window of this length.
pub(crate) fn most_in_any_window(calls: &[Call], window: Duration) -> u64 {
    let window_us = u64::try_from(window.as_micros()).expect("windows are short");
    let mut admitted: Vec<(u64, u64)> =
        calls.iter().filter(|call| call.allowed).map(|call| (call.sent_us, call.answered_us)).collect();
    admitted.sort_unstable();
    let mut most = 0;
    for (index, (start_us, _)) in admitted.iter().enumerate() {
        let end_us = start_us + window_us;
        let inside = admitted[index..].iter().take_while(|(sent_us, _)| *sent_us <= end_us);
        most = most.max(inside.filter(|(_, answered_us)| *answered_us <= end_us).count() as u64);
    }
    most
}

/// The latency that so many of a hundred calls stayed below. Bars of a 99th percentile are judged by fewer here: the machine
/// may stand still for a moment, and what was due meanwhile comes all at once.
pub(crate) fn percentile(calls: &[Call], percent: usize) -> Duration {
    let mut latencies: Vec<Duration> = calls.iter().map(Call::latency).collect();
    latencies.sort_unstable();
    latencies.get(latencies.len() * percent / 100).copied().unwrap_or_default()
}

/// From the first call sent to the last.
pub(crate) fn span(calls: &[Call]) -> Duration {
    let sent = || calls.iter().map(|call| call.sent_us);
    Duration::from_micros(sent().max().unwrap_or(0) - sent().min().unwrap_or(0))
}
