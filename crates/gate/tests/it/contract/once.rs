//! Once on every backend.

use std::time::Duration;
use testkit::eventually;

use gate::once::{Claim, Claimed, Once, Policy};
use gate::{Backend, Key};

use crate::backends::{each_backend, key};

const LEASE: Duration = Duration::from_secs(30);
const KEEP: Duration = Duration::from_hours(1);

fn once(backend: &Backend) -> Once {
    Once::new(backend, Policy::new(LEASE, KEEP).expect("the settings are valid"))
}

async fn won(once: &Once, name: &Key) -> Claim {
    match once.claim(name).await {
        Claimed::Won(claim) => claim,
        other => panic!("expected to win, got {other:?}"),
    }
}

#[tokio::test]
async fn one_wins_the_others_wait_and_then_learn_the_result() {
    each_backend(async |backend, clock| {
        let (once, name) = (once(&backend), key("a"));
        let claim = won(&once, &name).await;
        clock.advance(Duration::from_secs(10));
        let Claimed::InProgress { retry_after, .. } = once.claim(&name).await else { panic!("somebody is at it") };
        assert_eq!(retry_after, Duration::from_secs(20));
        assert!(claim.complete(&b"\x00result\xff"[..]).await.unwrap());
        let Claimed::Done { result, .. } = once.claim(&name).await else { panic!("it is done") };
        assert_eq!(&result[..], b"\x00result\xff");
        clock.advance(KEEP);
        won(&once, &name).await.complete("").await.unwrap();
    })
    .await;
}

/// Pitfall 22: work longer than its claim runs twice; the fence tells the two apart, and the first cannot finish.
#[tokio::test]
async fn work_that_outlives_its_claim_has_the_smaller_fence_and_cannot_complete() {
    each_backend(async |backend, clock| {
        let (once, name) = (once(&backend), key("a"));
        let slow = won(&once, &name).await;
        clock.advance(LEASE);
        let fast = won(&once, &name).await;
        assert!(fast.fence() > slow.fence());
        assert!(!slow.renew().await.unwrap());
        assert!(!slow.complete("slow").await.unwrap());
        assert!(fast.complete("fast").await.unwrap());
        let Claimed::Done { result, .. } = once.claim(&name).await else { panic!("it is done") };
        assert_eq!(&result[..], b"fast");
    })
    .await;
}

#[tokio::test]
async fn a_renewed_claim_is_kept_and_one_that_nobody_took_over_can_still_complete() {
    each_backend(async |backend, clock| {
        let (once, name) = (once(&backend), key("a"));
        let claim = won(&once, &name).await;
        for _ in 0..3 {
            clock.advance(Duration::from_secs(20));
            assert!(claim.renew().await.unwrap());
        }
        clock.advance(LEASE * 2);
        assert!(claim.complete("late but alone").await.unwrap());
    })
    .await;
}

/// Pitfall 22: a mark that is set before the work, then a crash, swallows the work.
#[tokio::test]
async fn a_claim_that_is_dropped_or_abandoned_is_free_for_the_next() {
    each_backend(async |backend, _| {
        let (once, name) = (once(&backend), key("a"));
        let first = won(&once, &name).await;
        let first_fence = first.fence();
        assert!(first.abandon().await.unwrap());
        let second = won(&once, &name).await;
        assert!(second.fence() > first_fence, "the clock stood still and the fence grew");
        drop(second);
        let mut third = None;
        eventually(Duration::from_secs(10), "the dropped claim", async || {
            if let Claimed::Won(claim) = once.claim(&name).await {
                third = Some(claim);
            }
            third.is_some()
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn a_result_over_64_kib_is_refused() {
    each_backend(async |backend, _| {
        let error = won(&once(&backend), &key("a")).await.complete(vec![0; 65_537]).await.unwrap_err();
        assert_eq!(error.to_string(), "result may be at most 65536");
    })
    .await;
}
