//! The limiter: the same answers in memory and in Redis.

use std::num::NonZeroU64;
use std::time::Duration;

use gate::limiter::{Algorithm, Ask, Limiter, Policy, Slot, Verdict};
use gate::{Error, Key};

use crate::backends::{each_backend, key};

const ALL: [Algorithm; 6] = [
    Algorithm::SlidingLog,
    Algorithm::TokenBucket,
    Algorithm::Gcra,
    Algorithm::SlidingCounter,
    Algorithm::FixedWindow,
    Algorithm::LeakyBucket,
];

fn per_second(algorithm: Algorithm, limit: u64) -> Policy {
    Policy::new(algorithm, limit, Duration::from_secs(1)).expect("a plain limit is valid")
}

fn cost(cost: u64) -> NonZeroU64 {
    NonZeroU64::new(cost).expect("costs are at least 1")
}

async fn allowed(limiter: &Limiter, key: &Key, policy: &Policy) -> bool {
    limiter.check(key, policy, cost(1)).await.is_allowed()
}

#[tokio::test]
async fn every_algorithm_admits_its_limit_and_then_says_when_to_come_again() {
    each_backend(async |backend, clock| {
        let limiter = Limiter::new(&backend);
        for algorithm in ALL {
            let (policy, key) = (per_second(algorithm, 3), key(&format!("{algorithm:?}")));
            for left in [2, 1, 0] {
                let decision = limiter.check(&key, &policy, cost(1)).await;
                assert_eq!((decision.is_allowed(), decision.remaining), (true, left), "{algorithm:?}");
            }
            let refused = limiter.check(&key, &policy, cost(1)).await;
            let retry_after = refused.retry_after().expect("a refusal that time heals says when");
            clock.advance(retry_after);
            assert!(allowed(&limiter, &key, &policy).await, "{algorithm:?} after {retry_after:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_cost_above_the_capacity_is_never_admitted_and_has_no_retry_after() {
    each_backend(async |backend, _| {
        let limiter = Limiter::new(&backend);
        for algorithm in ALL {
            let decision = limiter.check(&key("never"), &per_second(algorithm, 3), cost(4)).await;
            assert_eq!((decision.verdict, decision.retry_after()), (Verdict::Never, None));
            let slot =
                limiter.reserve(&key("never"), &per_second(algorithm, 3), cost(4), Duration::from_secs(9)).await.slot;
            assert_eq!(slot, Slot::Never);
        }
    })
    .await;
}

#[tokio::test]
async fn a_peek_takes_nothing() {
    each_backend(async |backend, _| {
        let limiter = Limiter::new(&backend);
        for algorithm in ALL {
            let (policy, key) = (per_second(algorithm, 1), key(&format!("peek-{algorithm:?}")));
            for _ in 0..5 {
                assert!(limiter.peek(&key, &policy, cost(1)).await.is_allowed());
            }
            assert!(allowed(&limiter, &key, &policy).await);
            assert!(!limiter.peek(&key, &policy, cost(1)).await.is_allowed());
        }
    })
    .await;
}

#[tokio::test]
async fn several_limits_are_charged_together_or_not_at_all_and_the_refusing_one_is_named() {
    each_backend(async |backend, _| {
        let limiter = Limiter::new(&backend);
        let tenant = key("tenant");
        let second = Ask::new(&tenant.scoped("second").unwrap(), &per_second(Algorithm::Gcra, 5), cost(1));
        let narrow = per_second(Algorithm::SlidingLog, 2);
        let user = Ask::new(&tenant.scoped("user").unwrap(), &narrow, cost(1));
        let asks = [second, user];
        for _ in 0..2 {
            assert!(limiter.check_all(&asks).await.unwrap().is_allowed());
        }
        for _ in 0..3 {
            let refused = limiter.check_all(&asks).await.unwrap();
            assert_eq!((refused.is_allowed(), refused.rule, refused.limit), (false, 1, 2));
        }
        let left = limiter.peek(&tenant.scoped("second").unwrap(), &per_second(Algorithm::Gcra, 5), cost(1)).await;
        assert_eq!(left.remaining, 3, "the wide limit paid only for what was admitted");
    })
    .await;
}

#[tokio::test]
async fn impossible_combinations_are_errors() {
    each_backend(async |backend, _| {
        let limiter = Limiter::new(&backend);
        let ask = Ask::new(&key("a"), &per_second(Algorithm::Gcra, 5), cost(1));
        assert!(matches!(limiter.check_all(&[]).await, Err(Error::LimitCount { .. })));
        assert!(matches!(limiter.check_all(&[ask.clone(), ask]).await, Err(Error::SameKeyTwice)));
    })
    .await;
}

#[tokio::test]
async fn reservations_queue_one_after_the_other_and_refuse_what_is_too_far() {
    each_backend(async |backend, clock| {
        let limiter = Limiter::new(&backend);
        let policy = per_second(Algorithm::Gcra, 10).burst(1).unwrap();
        let mut delays = Vec::new();
        for _ in 0..4 {
            delays.push(limiter.reserve(&key("slots"), &policy, cost(1), Duration::from_millis(250)).await.slot);
        }
        let taken = |ms| Slot::Taken { delay: Duration::from_millis(ms) };
        let too_far = Slot::TooFar { delay: Duration::from_millis(300) };
        assert_eq!(delays, [taken(0), taken(100), taken(200), too_far]);
        assert!(!allowed(&limiter, &key("slots"), &policy).await, "nobody overtakes a reservation");
        clock.advance(Duration::from_millis(300));
        assert!(allowed(&limiter, &key("slots"), &policy).await);
    })
    .await;
}

#[tokio::test]
async fn refund_and_reset_free_at_once_what_a_remembered_refusal_would_hold() {
    each_backend(async |backend, _| {
        let limiter = Limiter::new(&backend);
        for algorithm in ALL {
            let (policy, key) = (per_second(algorithm, 2), key(&format!("freed-{algorithm:?}")));
            assert!(limiter.check(&key, &policy, cost(2)).await.is_allowed());
            assert!(!allowed(&limiter, &key, &policy).await);
            assert_eq!(limiter.refund(&key, &policy, cost(1), Duration::ZERO).await.remaining, 1, "{algorithm:?}");
            assert!(allowed(&limiter, &key, &policy).await, "{algorithm:?} after a refund");
            assert!(!allowed(&limiter, &key, &policy).await);
            assert!(limiter.reset(&key, &policy).await);
            assert!(limiter.check(&key, &policy, cost(2)).await.is_allowed(), "{algorithm:?} after a reset");
        }
    })
    .await;
}

#[tokio::test]
async fn a_refund_that_comes_after_the_window_frees_nothing_of_the_next() {
    each_backend(async |backend, clock| {
        let limiter = Limiter::new(&backend);
        for algorithm in ALL {
            let (policy, key) = (per_second(algorithm, 2), key(&format!("turned-{algorithm:?}")));
            assert!(limiter.check(&key, &policy, cost(2)).await.is_allowed());
            clock.advance(Duration::from_secs(2));
            assert!(limiter.check(&key, &policy, cost(2)).await.is_allowed(), "{algorithm:?}");
            let left = limiter.refund(&key, &policy, cost(2), Duration::from_secs(2)).await.remaining;
            assert_eq!(left, 0, "{algorithm:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_refused_large_cost_does_not_refuse_a_small_one_and_a_raised_limit_counts_at_once() {
    each_backend(async |backend, _| {
        let limiter = Limiter::new(&backend);
        for algorithm in ALL {
            let (policy, key) = (per_second(algorithm, 10), key(&format!("small-{algorithm:?}")));
            assert!(limiter.check(&key, &policy, cost(8)).await.is_allowed());
            assert!(!limiter.check(&key, &policy, cost(10)).await.is_allowed());
            assert!(limiter.check(&key, &policy, cost(2)).await.is_allowed(), "{algorithm:?}");
            assert!(!allowed(&limiter, &key, &policy).await);
            // Windows have room at once; the others refill at the new rate.
            let raised = limiter.check(&key, &per_second(algorithm, 30), cost(1)).await;
            let wait = raised.retry_after().unwrap_or_default();
            assert!(wait <= Duration::from_millis(34), "{algorithm:?} with a raised limit waits {wait:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn concurrent_checks_of_one_key_admit_exactly_the_limit() {
    each_backend(async |backend, _| {
        let limiter = Limiter::new(&backend);
        for algorithm in ALL {
            let (policy, key) = (per_second(algorithm, 100), key(&format!("hot-{algorithm:?}")));
            let checks = (0..300).map(|n| limiter.check(&key, &policy, cost(1 + n % 3)));
            let costs = (0..300).map(|n| 1 + n % 3);
            let answers = futures_util::future::join_all(checks).await;
            let admitted: u64 =
                answers.iter().zip(costs).filter(|(answer, _)| answer.is_allowed()).map(|(_, cost)| cost).sum();
            assert!((98..=100).contains(&admitted), "{algorithm:?} admitted {admitted}");
            let left = limiter.peek(&key, &policy, cost(1)).await.remaining;
            assert_eq!(left, 100 - admitted, "{algorithm:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn every_limit_is_answered_for_and_all_are_counted_or_none() {
    each_backend(async |backend, _| {
        let limiter = Limiter::new(&backend);
        let user = key("every-user");
        let minute = user.scoped("minute").expect("short");
        let roomy = per_second(Algorithm::Gcra, 10);
        for algorithm in ALL {
            let narrow = per_second(algorithm, 2);
            let tight = user.scoped(format!("{algorithm:?}")).expect("short");
            limiter.reset(&minute, &roomy).await;
            let asks = [Ask::new(&minute, &roomy, cost(3)), Ask::new(&tight, &narrow, cost(1))];
            for left in [(7, 1), (4, 0)] {
                let decisions = limiter.check_every(&asks).await.expect("two keys of one tag");
                assert!(decisions.iter().all(gate::limiter::Decision::is_allowed), "{algorithm:?} {decisions:?}");
                assert_eq!((decisions[0].remaining, decisions[1].remaining), left, "{algorithm:?}");
            }
            let decisions = limiter.check_every(&asks).await.expect("two keys of one tag");
            assert!(decisions[0].is_allowed() && !decisions[1].is_allowed(), "{algorithm:?} {decisions:?}");
            assert_eq!(
                (decisions[0].remaining, decisions[1].rule),
                (4, 1),
                "nothing is counted, and each has its number"
            );
            let never = [Ask::new(&minute, &roomy, cost(3)), Ask::new(&tight, &narrow, cost(3))];
            let decisions = limiter.check_every(&never).await.expect("two keys of one tag");
            assert_eq!((decisions[0].remaining, decisions[1].verdict), (4, Verdict::Never), "{algorithm:?}");
        }
    })
    .await;
}
