//! Crash points: named places at which a test has this process die as if the power went.
//!
//! `TIDEGATE_CRASH_AT=send.after:3` is the third time that the point `send.after` is reached; with `:panic` behind it a panic
//! takes the place of death. Only debug builds read it; in a release build nothing of this is left.

/// Ends the process here, without a word, if a test asked for that.
#[inline(always)]
pub fn crash_point(name: &str) {
    #[cfg(debug_assertions)]
    armed::reached(name);
    #[cfg(not(debug_assertions))]
    let _ = name;
}

#[cfg(debug_assertions)]
mod armed {
    use std::sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    };

    struct Plan {
        point: String,
        /// Hits until the last.
        left: AtomicU32,
        is_panic: bool,
    }

    static PLAN: LazyLock<Option<Plan>> = LazyLock::new(|| {
        #[expect(clippy::disallowed_methods, reason = "a switch of debug builds for tests, not a setting")]
        let value = std::env::var("TIDEGATE_CRASH_AT").ok()?;
        let (plan, is_panic) = value.strip_suffix(":panic").map_or((&*value, false), |plan| (plan, true));
        let (point, nth) = plan.split_once(':').unwrap_or((plan, "1"));
        Some(Plan { point: point.to_owned(), left: AtomicU32::new(nth.parse().ok()?), is_panic })
    });

    pub(super) fn reached(name: &str) {
        if let Some(plan) = &*PLAN
            && plan.point == name
            && plan.left.fetch_sub(1, Relaxed) == 1
        {
            assert!(!plan.is_panic, "a test asked for a panic at {name}");
            std::process::abort();
        }
    }
}
