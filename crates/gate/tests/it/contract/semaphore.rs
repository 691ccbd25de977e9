//! The semaphore on every backend.

use std::time::Duration;
use testkit::eventually;

use gate::semaphore::{Acquired, Permit, Policy, Semaphore};
use gate::{Backend, Key};

use crate::backends::{each_backend, key};

const LEASE: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_secs(10);

fn semaphore(backend: &Backend, limit: u32) -> Semaphore {
    Semaphore::new(backend, Policy::new(limit, LEASE).expect("the settings are valid"))
}

async fn permit(semaphore: &Semaphore, key: &Key) -> Permit {
    match semaphore.try_acquire(key).await {
        Acquired::Permit(permit) => permit,
        full @ Acquired::Full { .. } => panic!("expected a permit, got {full:?}"),
    }
}

async fn full(semaphore: &Semaphore, key: &Key) -> Duration {
    match semaphore.try_acquire(key).await {
        Acquired::Full { retry_after, .. } => retry_after,
        Acquired::Permit(permit) => panic!("expected none to be free, got {permit:?}"),
    }
}

#[tokio::test]
async fn no_more_are_held_than_the_limit_and_a_dropped_permit_is_free_again() {
    each_backend(async |backend, clock| {
        let (semaphore, key) = (semaphore(&backend, 2), key("a"));
        let (first, _second) = (permit(&semaphore, &key).await, permit(&semaphore, &key).await);
        clock.advance(Duration::from_secs(10));
        assert_eq!(full(&semaphore, &key).await, Duration::from_secs(20), "the first lease ends by itself then");
        drop(first);
        eventually(SHORT, "the dropped permit", async || semaphore.held(&key).await == 1).await;
        permit(&semaphore, &key).await.release().await;
    })
    .await;
}

/// Pitfall 21: a stranger's, a second and a late release inflate a counter.
#[tokio::test]
async fn releasing_twice_or_late_frees_nobody_elses_permit() {
    each_backend(async |backend, clock| {
        let (semaphore, key) = (semaphore(&backend, 1), key("a"));
        let late = permit(&semaphore, &key).await;
        clock.advance(LEASE);
        let current = permit(&semaphore, &key).await;
        assert!(!late.release().await, "its lease had ended");
        assert_eq!(semaphore.held(&key).await, 1);
        full(&semaphore, &key).await;
        assert!(current.release().await);
        assert_eq!(semaphore.held(&key).await, 0);
    })
    .await;
}

/// Pitfall 21: live users' refresh keeps leaked permits for ever.
#[tokio::test]
async fn a_leaked_permit_returns_after_its_lease_while_others_keep_renewing() {
    each_backend(async |backend, clock| {
        let (semaphore, key) = (semaphore(&backend, 2), key("a"));
        let alive = permit(&semaphore, &key).await;
        std::mem::forget(permit(&semaphore, &key).await);
        for _ in 0..3 {
            clock.advance(LEASE / 3);
            assert!(alive.renew().await);
        }
        assert_eq!(semaphore.held(&key).await, 1, "only the live one is held");
        let _second = permit(&semaphore, &key).await;
        full(&semaphore, &key).await;
    })
    .await;
}

#[tokio::test]
async fn a_holder_whose_lease_ended_is_told_so() {
    each_backend(async |backend, clock| {
        let (semaphore, key) = (semaphore(&backend, 1), key("a"));
        let lost = permit(&semaphore, &key).await;
        clock.advance(LEASE);
        assert!(!lost.is_lost(), "nobody looked yet");
        assert!(!lost.renew().await);
        assert!(lost.is_lost());
        tokio::time::timeout(SHORT, lost.lost()).await.expect("the holder is told");
    })
    .await;
}

#[tokio::test]
async fn waiting_ends_with_a_permit_when_one_is_released_or_without_at_the_deadline() {
    each_backend(async |backend, _| {
        let (semaphore, key) = (semaphore(&backend, 1), key("a"));
        let held = permit(&semaphore, &key).await;
        let in_vain = semaphore.acquire(&key, Duration::from_millis(60)).await;
        assert!(matches!(in_vain, Acquired::Full { .. }), "{in_vain:?}");
        let (waited, released) = tokio::join!(semaphore.acquire(&key, SHORT), held.release());
        let Acquired::Permit(held) = waited else { panic!("{waited:?}") };
        let (waited, released_again) = tokio::join!(semaphore.acquire(&key, Duration::MAX), held.release());
        assert!(released && released_again && matches!(waited, Acquired::Permit(_)), "{waited:?}");
    })
    .await;
}

/// Pitfall 21: lost wake-ups. Twenty waiters of one permit all get their turn, in little more than no time.
#[tokio::test]
async fn everybody_who_waits_gets_a_turn_and_never_two_at_once() {
    each_backend(async |backend, _| {
        let (semaphore, key) = (semaphore(&backend, 1), key("a"));
        let inside = std::sync::atomic::AtomicU32::new(0);
        let visits = (0..20).map(|_| async {
            let Acquired::Permit(permit) = semaphore.acquire(&key, SHORT).await else { panic!("no turn in time") };
            assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0, "two are inside");
            tokio::task::yield_now().await;
            inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
            permit.release().await;
        });
        futures_util::future::join_all(visits).await;
    })
    .await;
}

/// A caller that gives up while it asks or waits leaves nothing behind.
#[tokio::test]
async fn giving_up_at_any_moment_leaks_no_permit() {
    each_backend(async |backend, _| {
        let (semaphore, key) = (semaphore(&backend, 3), key("a"));
        for micros in 0..100 {
            let limit = Duration::from_micros(micros * 5);
            tokio::time::timeout(limit, semaphore.acquire(&key, SHORT)).await.ok();
        }
        eventually(SHORT, "all permits to be free", async || semaphore.held(&key).await == 0).await;
    })
    .await;
}

#[test]
fn policies_that_cannot_work_are_refused() {
    let refused = |limit, lease| Policy::new(limit, lease).unwrap_err().to_string();
    assert_eq!(refused(0, LEASE), "limit must be at least 1");
    assert_eq!(refused(1_000_001, LEASE), "limit may be at most 1000000");
    assert_eq!(refused(1, Duration::ZERO), "lease must be at least 1ms");
    assert!(refused(1, Duration::MAX).starts_with("lease may be at most one hour"));
}
