//! The one place that polls: every wait has a deadline and says what it waited for.

use std::{
    fmt,
    thread::sleep,
    time::{Duration, Instant},
};

const STEP: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub struct TimedOut {
    pub limit: Duration,
    pub what: String,
}

impl fmt::Display for TimedOut {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "waited {:?} in vain for {}", self.limit, self.what)
    }
}

impl std::error::Error for TimedOut {}

/// Asks `probe` until it has an answer. It is asked at least once, and once more after the deadline has passed.
pub fn try_wait_until<T>(
    limit: Duration,
    what: impl fmt::Display,
    mut probe: impl FnMut() -> Option<T>,
) -> Result<T, TimedOut> {
    let deadline = Instant::now() + limit;
    loop {
        let is_last = Instant::now() >= deadline;
        if let Some(answer) = probe() {
            return Ok(answer);
        }
        if is_last {
            return Err(TimedOut { limit, what: what.to_string() });
        }
        sleep(STEP);
    }
}

/// Waits until `holds` does, and blocks the thread meanwhile: see `eventually` for tests with a runtime.
///
/// # Panics
/// With what it waited for, when the deadline passes first.
pub fn wait_until(limit: Duration, what: impl fmt::Display, mut holds: impl FnMut() -> bool) {
    if let Err(timed_out) = try_wait_until(limit, what, || holds().then_some(())) {
        panic!("{timed_out}");
    }
}

/// `wait_until` for tests with a runtime, whose other tasks go on meanwhile.
///
/// # Panics
/// With what it waited for, when the deadline passes first.
pub async fn eventually(limit: Duration, what: impl fmt::Display, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + limit;
    loop {
        let is_last = Instant::now() >= deadline;
        if holds().await {
            return;
        }
        assert!(!is_last, "{}", TimedOut { limit, what: what.to_string() });
        tokio::time::sleep(STEP).await;
    }
}
