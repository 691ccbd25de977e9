//! Whether a subscription fails, as far as this replica knows, and what of it is news to the database.
//!
//! The database is told of the first failure after a success and of the first success after a failure: between the two the
//! days are counted after which it is disabled. All replicas read each of these changes, so a receiver whose answers are mixed
//! must not make one with every call: a failure soon after a success is not told. The count may begin a little late by that,
//! and never early.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

/// For so long after a success a failure is no news.
const QUIET: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct Health {
    /// The database says that it fails.
    is_failing: AtomicBool,
    last_success: Mutex<Option<Instant>>,
}

impl Health {
    /// As the database has it.
    pub fn know(&self, is_failing: bool) {
        self.is_failing.store(is_failing, Relaxed);
    }

    /// Is the database to be told? Each change is told by the one who hears of it here.
    pub fn is_news(&self, is_success: bool, now: Instant) -> bool {
        let mut last_success = self.last_success.lock();
        if is_success {
            *last_success = Some(now);
        } else if last_success.is_some_and(|last| now.duration_since(last) < QUIET) {
            return false;
        }
        self.is_failing.swap(!is_success, Relaxed) == is_success
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_news_once() {
        let (health, now) = (Health::default(), Instant::now());
        assert!(!health.is_news(true, now));
        let later = now + QUIET;
        assert!(health.is_news(false, later));
        assert!(!health.is_news(false, later));
        assert!(health.is_news(true, later));
        assert!(!health.is_news(true, later));
    }

    #[test]
    fn the_first_failure_of_one_that_is_not_known_is_news() {
        assert!(Health::default().is_news(false, Instant::now()));
    }

    #[test]
    fn mixed_answers_are_no_news_and_failures_alone_are_after_a_while() {
        let (health, start) = (Health::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let news = (0..600).filter(|n| health.is_news(n % 3 != 0, at(*n))).count();
        assert_eq!(news, 2, "the first failure, and the success after it");
        assert!(!health.is_news(false, at(600)));
        assert!(!health.is_news(false, at(658)));
        assert!(health.is_news(false, at(659)));
    }

    #[test]
    fn a_success_is_news_to_whoever_knows_that_it_failed_elsewhere() {
        let (health, now) = (Health::default(), Instant::now());
        health.is_news(true, now);
        health.know(true);
        assert!(health.is_news(true, now));
    }
}
