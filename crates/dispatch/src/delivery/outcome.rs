//! What follows an attempt: done, again later, or given up.
//!
//! Waits never get shorter than the schedule says: jitter is only added, and a receiver can only ask for more time.
//! The attempt number counts all attempts of a delivery, those asked for by hand too, so a manual retry of a delivery
//! whose schedule is used up is one attempt and starts no new schedule.

use std::{borrow::Cow, fmt, time::Duration};

use super::schedule::{MAX_STEP, RetrySchedule};

/// A receiver can make us wait this long and no longer.
pub const RETRY_AFTER_CAP: Duration = Duration::from_secs(24 * 60 * 60);
/// At most this part of a wait is added to it, so that deliveries that failed together do not return together.
pub const JITTER: f64 = 0.1;
/// After so long with nothing but failures a subscription is disabled.
pub const DISABLE_AFTER: Duration = Duration::from_secs(5 * 24 * 60 * 60);

/// How failed attempts of one subscription are repeated.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    pub schedule: RetrySchedule,
    /// The longest wait that a `Retry-After` can ask for.
    pub retry_after_cap: Duration,
    /// The largest part of a wait that is added to it.
    pub jitter: f64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy::new(RetrySchedule::default())
    }
}

impl RetryPolicy {
    pub fn new(schedule: RetrySchedule) -> Self {
        RetryPolicy { schedule, retry_after_cap: RETRY_AFTER_CAP, jitter: JITTER }
    }

    /// The wait before the next attempt, where `hint` is what the receiver asked for and `jitter` lies in 0..1.
    fn wait(&self, step: Duration, hint: Option<Duration>, jitter: f64) -> Duration {
        // The second bound keeps the arithmetic far from overflow whatever the policy says.
        let cap = self.retry_after_cap.min(MAX_STEP);
        let base = step.max(hint.unwrap_or_default().min(cap));
        let part = self.jitter.clamp(0.0, 1.0) * jitter.clamp(0.0, 1.0);
        // NaN survives `clamp`; a wait without jitter is still a right wait.
        base + if part.is_nan() { Duration::ZERO } else { base.mul_f64(part) }
    }
}

/// Every [`Outcome::class`]: of answers, and of `platform::http_client`'s errors.
pub const CLASSES: [&str; 14] = [
    "success",
    "redirect",
    "gone",
    "too_many_requests",
    "client_error",
    "server_error",
    "odd_status",
    "refused",
    "dns",
    "connect",
    "tls",
    "timeout",
    "protocol",
    "connection_closed",
];

/// How one attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver answered, and may have asked for time.
    Answered { status: u16, retry_after: Option<Duration> },
    /// There was no complete answer: not resolved, refused, blocked, too late, broken off.
    NoAnswer { class: &'static str, detail: Cow<'static, str> },
}

impl Outcome {
    pub fn answered(status: u16) -> Self {
        Outcome::Answered { status, retry_after: None }
    }

    pub fn is_success(&self) -> bool {
        matches!(self, Outcome::Answered { status: 200..=299, .. })
    }

    /// The receiver, or what stands before it, has too much to do.
    pub fn is_slow_down(&self) -> bool {
        matches!(self, Outcome::Answered { status: 429 | 502..=504, .. })
    }

    /// A bounded word for metrics and for the class in an attempt's `error`.
    pub fn class(&self) -> &'static str {
        match self {
            Outcome::NoAnswer { class, .. } => class,
            Outcome::Answered { status, .. } => match status {
                200..=299 => "success",
                300..=399 => "redirect",
                410 => "gone",
                429 => "too_many_requests",
                400..=499 => "client_error",
                500..=599 => "server_error",
                _ => "odd_status",
            },
        }
    }
}

/// One sentence for people, as in an attempt's `error`.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::NoAnswer { detail, .. } => f.write_str(detail),
            Outcome::Answered { status: status @ 300..=399, .. } => {
                write!(f, "the receiver answered {status}: redirects are not followed, set the final URL")
            }
            Outcome::Answered { status: 410, .. } => f.write_str("the receiver answered 410: it wants no more events"),
            Outcome::Answered { status, .. } => write!(f, "the receiver answered {status}"),
        }
    }
}

/// What is to be done after an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    Delivered,
    RetryAfter(Duration),
    Failed {
        reason: GivenUp,
    },
    /// The delivery has failed, and its subscription gets no more.
    DisableSubscription {
        reason: GivenUp,
    },
}

/// Why no attempt follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenUp {
    /// The schedule is used up.
    NoAttemptsLeft { attempts: u32 },
    /// The receiver answered 410.
    Gone,
}

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GivenUp::NoAttemptsLeft { attempts: 1 } => f.write_str("the only attempt failed"),
            GivenUp::NoAttemptsLeft { attempts } => write!(f, "all {attempts} attempts failed"),
            GivenUp::Gone => f.write_str("the receiver answered 410 (gone), so the subscription is disabled"),
        }
    }
}

/// What follows attempt number `attempt` (the first is 1). `jitter` is a random number in 0..1.
pub fn decide(policy: &RetryPolicy, attempt: u32, outcome: &Outcome, jitter: f64) -> Next {
    let hint = match outcome {
        Outcome::Answered { status: 200..=299, .. } => return Next::Delivered,
        Outcome::Answered { status: 410, .. } => return Next::DisableSubscription { reason: GivenUp::Gone },
        Outcome::Answered { retry_after, .. } if outcome.is_slow_down() => *retry_after,
        Outcome::Answered { .. } | Outcome::NoAnswer { .. } => None,
    };
    match policy.schedule.wait_after(attempt) {
        Some(step) => Next::RetryAfter(policy.wait(step, hint, jitter)),
        None => Next::Failed { reason: GivenUp::NoAttemptsLeft { attempts: attempt } },
    }
}

/// Has this subscription done nothing but fail for so long that it is disabled?
pub fn should_disable(first_failure_age: Duration) -> bool {
    first_failure_age >= DISABLE_AFTER
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slow_down(status: u16, seconds: u64) -> Outcome {
        Outcome::Answered { status, retry_after: Some(Duration::from_secs(seconds)) }
    }

    fn wait(attempt: u32, outcome: &Outcome) -> Duration {
        match decide(&RetryPolicy::default(), attempt, outcome, 0.0) {
            Next::RetryAfter(wait) => wait,
            other => panic!("{outcome:?} led to {other:?}"),
        }
    }

    #[test]
    fn only_2xx_is_delivered() {
        let policy = RetryPolicy::default();
        for status in 0..1000 {
            let next = decide(&policy, 1, &Outcome::answered(status), 0.5);
            assert_eq!(next == Next::Delivered, (200..300).contains(&status), "{status}");
        }
        let next = decide(&policy, 99, &Outcome::answered(204), 0.5);
        assert_eq!(next, Next::Delivered, "a late success is a success");
    }

    #[test]
    fn failures_follow_the_schedule_and_then_end() {
        let broken = Outcome::NoAnswer { class: "timeout", detail: "no answer within 15s".into() };
        let waits: Vec<u64> = (1..=7).map(|attempt| wait(attempt, &broken).as_secs()).collect();
        assert_eq!(waits, [5, 300, 1800, 7200, 18_000, 36_000, 36_000]);
        let last = decide(&RetryPolicy::default(), 8, &broken, 0.0);
        assert_eq!(last, Next::Failed { reason: GivenUp::NoAttemptsLeft { attempts: 8 } });
    }

    #[test]
    fn a_manual_retry_past_the_schedule_is_one_attempt() {
        for attempt in [9, 10, 1000, u32::MAX] {
            let next = decide(&RetryPolicy::default(), attempt, &Outcome::answered(500), 0.0);
            assert_eq!(next, Next::Failed { reason: GivenUp::NoAttemptsLeft { attempts: attempt } });
        }
    }

    #[test]
    fn gone_disables_the_subscription_at_any_attempt() {
        for attempt in [1, 8, 9] {
            let next = decide(&RetryPolicy::default(), attempt, &Outcome::answered(410), 0.0);
            assert_eq!(next, Next::DisableSubscription { reason: GivenUp::Gone });
        }
    }

    #[test]
    fn an_overloaded_receiver_can_ask_for_more_time_but_not_for_less_and_not_for_ever() {
        for status in [429, 502, 503, 504] {
            assert_eq!(wait(1, &slow_down(status, 60)), Duration::from_secs(60));
            assert_eq!(wait(2, &slow_down(status, 60)), Duration::from_secs(300));
            assert_eq!(wait(1, &slow_down(status, 1_000_000)), RETRY_AFTER_CAP);
        }
        for status in [400, 404, 500, 301] {
            assert_eq!(wait(1, &slow_down(status, 60)), Duration::from_secs(5), "{status}");
        }
    }

    #[test]
    fn a_step_longer_than_the_cap_stays() {
        let policy = RetryPolicy::new(RetrySchedule::parse("retry_schedule", &["3days"]).unwrap());
        let next = decide(&policy, 1, &slow_down(503, 1_000_000), 0.0);
        assert_eq!(next, Next::RetryAfter(Duration::from_secs(3 * 24 * 3600)));
    }

    #[test]
    fn no_policy_overflows() {
        let policy = RetryPolicy { retry_after_cap: Duration::MAX, jitter: f64::INFINITY, ..RetryPolicy::default() };
        let outcome = Outcome::Answered { status: 429, retry_after: Some(Duration::MAX) };
        assert_eq!(decide(&policy, 1, &outcome, f64::MAX), Next::RetryAfter(MAX_STEP * 2));
        assert_eq!(decide(&policy, 1, &outcome, f64::NAN), Next::RetryAfter(MAX_STEP));
    }

    #[test]
    fn a_subscription_is_disabled_after_five_days_of_nothing_but_failures() {
        let just_under = DISABLE_AFTER - Duration::from_nanos(1);
        assert!(should_disable(DISABLE_AFTER));
        assert!(!should_disable(just_under));
    }

    #[test]
    fn every_outcome_has_a_class_and_a_sentence() {
        assert!((0..1000).all(|status| CLASSES.contains(&Outcome::answered(status).class())));
        assert_eq!(Outcome::answered(302).class(), "redirect");
        assert_eq!(
            Outcome::answered(302).to_string(),
            "the receiver answered 302: redirects are not followed, set the final URL"
        );
        assert_eq!(Outcome::answered(999).class(), "odd_status");
        let refused = Outcome::NoAnswer { class: "connect", detail: "connection refused".into() };
        assert_eq!((refused.class(), refused.to_string().as_str()), ("connect", "connection refused"));
    }

    proptest! {
        /// Whatever the receiver answers and the dice say, a wait is at least its step and at most a bound.
        #[test]
        fn a_wait_is_never_shorter_than_its_step(
            attempt in 0..10_u32,
            status in 0..1000_u16,
            hint in proptest::option::of(any::<u64>()),
            jitter in prop_oneof![any::<f64>(), 0.0..1.0],
        ) {
            let policy = RetryPolicy::default();
            let outcome = Outcome::Answered { status, retry_after: hint.map(Duration::from_secs) };
            if let Next::RetryAfter(wait) = decide(&policy, attempt, &outcome, jitter) {
                let step = policy.schedule.wait_after(attempt).unwrap();
                prop_assert!(wait >= step);
                prop_assert!(wait <= step.max(RETRY_AFTER_CAP).mul_f64(1.0 + JITTER));
                if !outcome.is_slow_down() {
                    prop_assert!(wait <= step.mul_f64(1.0 + JITTER));
                }
            }
        }
    }
}
