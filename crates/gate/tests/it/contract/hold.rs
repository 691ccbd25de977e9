//! Holds: the same answers in memory and in Redis.

use std::num::NonZeroU64;
use std::time::Duration;

use gate::limiter::hold::{Holds, Outcome, Token};
use gate::limiter::{Algorithm, Limiter, Policy};
use gate::{Backend, Key};

use crate::backends::{each_backend, key};

const MINUTE: Duration = Duration::from_secs(60);
const ALL: [Algorithm; 6] = [
    Algorithm::SlidingLog,
    Algorithm::TokenBucket,
    Algorithm::Gcra,
    Algorithm::SlidingCounter,
    Algorithm::FixedWindow,
    Algorithm::LeakyBucket,
];

struct Case {
    limiter: Limiter,
    holds: Holds,
    key: Key,
    policy: Policy,
}

impl Case {
    /// Ten an hour, so that nothing comes back by itself meanwhile.
    fn new(backend: &Backend, algorithm: Algorithm, name: &str) -> Case {
        let limiter = Limiter::new(backend);
        let holds = Holds::new(backend, &limiter);
        let policy = Policy::new(algorithm, 10, Duration::from_secs(3_600)).expect("a plain limit is valid");
        Case { limiter, holds, key: key(&format!("{name}-{algorithm:?}")), policy }
    }

    async fn hold(&self, cost: u64) -> Option<Token> {
        self.hold_for(cost, MINUTE).await
    }

    async fn hold_for(&self, cost: u64, lasts: Duration) -> Option<Token> {
        let cost = NonZeroU64::new(cost).expect("costs are at least 1");
        self.holds.hold("owner", &self.key, &self.policy, cost, lasts).await.expect("there is room").1
    }

    async fn left(&self) -> u64 {
        self.limiter.peek(&self.key, &self.policy, NonZeroU64::MIN).await.remaining
    }
}

#[tokio::test]
async fn a_hold_takes_its_cost_and_settling_corrects_it_once() {
    each_backend(async |backend, _| {
        for algorithm in ALL {
            let case = Case::new(&backend, algorithm, "settle");
            let token = case.hold(8).await.expect("ten are free");
            assert!(case.hold(3).await.is_none(), "{algorithm:?}: only two are left");
            assert_eq!(case.left().await, 2, "{algorithm:?}");
            let settled = case.holds.settle(&case.key, &case.policy, &token, 3).await;
            assert_eq!((settled.outcome, settled.cost, settled.remaining), (Outcome::Settled, 3, 7), "{algorithm:?}");
            let again = case.holds.settle(&case.key, &case.policy, &token, 0).await;
            assert_eq!((again.outcome, again.cost, again.remaining), (Outcome::Again, 3, 7), "{algorithm:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn what_cost_more_than_was_held_is_charged_too() {
    each_backend(async |backend, _| {
        for algorithm in ALL {
            let case = Case::new(&backend, algorithm, "more");
            let token = case.hold(2).await.expect("ten are free");
            case.holds.settle(&case.key, &case.policy, &token, 6).await;
            assert_eq!(case.left().await, 4, "{algorithm:?}");
            let token = case.hold(4).await.expect("four are free");
            let huge = case.holds.settle(&case.key, &case.policy, &token, u64::MAX).await;
            assert_eq!((huge.outcome, huge.remaining), (Outcome::Settled, 0), "{algorithm:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_hold_that_nobody_settles_ends_by_itself_and_a_late_price_is_charged() {
    each_backend(async |backend, clock| {
        let case = Case::new(&backend, Algorithm::TokenBucket, "ends");
        let token = case.hold(9).await.expect("ten are free");
        clock.advance(MINUTE);
        // Another process may be the one that looks: the hold is not its own.
        let other = Holds::new(&backend, &case.limiter);
        let sweeper = if backend.connection().is_some() { &other } else { &case.holds };
        testkit::wait::eventually(Duration::from_secs(10), "the hold to end", async || {
            sweeper.sweep().await;
            case.left().await == 10
        })
        .await;
        let late = case.holds.settle(&case.key, &case.policy, &token, 4).await;
        assert_eq!((late.outcome, late.remaining), (Outcome::Late, 6));
    })
    .await;
}

#[tokio::test]
async fn a_hold_of_a_window_that_is_over_gives_nothing_to_the_next() {
    each_backend(async |backend, clock| {
        let case = Case::new(&backend, Algorithm::FixedWindow, "over");
        // It outlasts its window: one that ends is swept in the background, sooner or later.
        let token = case.hold_for(10, Duration::from_secs(7_200)).await.expect("ten are free");
        clock.advance(Duration::from_secs(3_600));
        assert!(case.limiter.check(&case.key, &case.policy, NonZeroU64::new(10).expect("ten")).await.is_allowed());
        let settled = case.holds.settle(&case.key, &case.policy, &token, 0).await;
        assert_eq!((settled.outcome, settled.remaining), (Outcome::Settled, 0), "the new window's ten are all used");
    })
    .await;
}

/// Eight bursts, held one after the other and cancelled together, passed at once.
#[tokio::test]
async fn bursts_cannot_be_saved_up_in_holds() {
    each_backend(async |backend, clock| {
        for algorithm in ALL {
            let case = Case::new(&backend, algorithm, "saved-up");
            let policy = Policy::new(algorithm, 10, Duration::from_secs(1)).expect("a plain limit is valid");
            let case = Case { policy, ..case };
            let mut tokens = Vec::new();
            for _ in 0..8 {
                tokens.push(case.hold(10).await.expect("all is free again"));
                clock.advance(Duration::from_secs(2));
            }
            let mut passed = 0;
            for token in tokens {
                let ten = NonZeroU64::new(10).expect("ten");
                passed += u32::from(case.limiter.check(&case.key, &policy, ten).await.is_allowed());
                case.holds.settle(&case.key, &policy, &token, 0).await;
            }
            assert_eq!(passed, 1, "{algorithm:?}");
        }
    })
    .await;
}

/// What was forgotten was given back: ten, a reset, ten more, a cancel, and another ten passed.
#[tokio::test]
async fn a_reset_forgets_what_is_held_too() {
    each_backend(async |backend, clock| {
        for algorithm in ALL {
            let case = Case::new(&backend, algorithm, "reset");
            let token = case.hold(10).await.expect("ten are free");
            clock.advance(Duration::from_micros(1));
            assert!(case.holds.reset(&case.key, &case.policy).await);
            clock.advance(Duration::from_micros(1));
            let after = case.hold(10).await.expect("all is free again");
            let cancelled = case.holds.settle(&case.key, &case.policy, &token, 0).await;
            assert_eq!((cancelled.outcome, cancelled.remaining), (Outcome::Settled, 0), "{algorithm:?}");
            assert_eq!(case.holds.settle(&case.key, &case.policy, &after, 4).await.remaining, 6, "{algorithm:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn strangers_and_other_keys_settle_nothing() {
    each_backend(async |backend, _| {
        let case = Case::new(&backend, Algorithm::Gcra, "stranger");
        let token = case.hold(5).await.expect("ten are free");
        let elsewhere = key("elsewhere");
        assert_eq!(case.holds.settle(&elsewhere, &case.policy, &token, 0).await.outcome, Outcome::Unknown);
        assert_eq!(case.left().await, 5);
    })
    .await;
}
