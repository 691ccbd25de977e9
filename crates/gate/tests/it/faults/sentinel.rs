//! A Sentinel set loses its master.

use std::num::NonZeroU64;
use std::time::Duration;
use testkit::eventually;

use gate::limiter::Limiter;
use gate::redis::Status;
use testkit::redis::Sentinel;

use super::{backend, now_us, policy};
use crate::backends::key;

/// Bar 28: the promoted replica decides, and what it allows again is at most what it had not heard of, a burst at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_replica_decides_and_lets_at_most_one_more_burst_through() {
    let set = testkit::need!(Sentinel::start());
    let urls = set.urls();
    let sentinels = urls.iter().map(|url| url.trim_start_matches("redis://").trim_end_matches('/'));
    let url = format!("redis+sentinel://{}/{}", sentinels.collect::<Vec<_>>().join(","), set.master_name());
    let backend = backend(&url, Duration::from_millis(250));
    eventually(Duration::from_secs(30), "the master", async || backend.connection() == Some(Status::Connected)).await;
    let limiter = Limiter::new(&backend);
    let ask = async || limiter.check(&key("a"), &policy(), NonZeroU64::MIN).await;
    let (mut allowed, started_us) = (0, now_us());
    while ask().await.is_allowed() {
        allowed += 1;
    }
    tokio::task::block_in_place(|| {
        let old = set.kill_master();
        set.wait_for_failover(old);
    });
    eventually(Duration::from_secs(60), "the promoted replica to decide", async || {
        let decision = ask().await;
        allowed += u64::from(decision.is_allowed());
        !decision.degraded
    })
    .await;
    while ask().await.is_allowed() {
        allowed += 1;
    }
    let right = super::LIMIT * (now_us() - started_us) / 1_000_000 + super::BURST;
    assert!(allowed <= right + super::BURST, "{allowed} of {right}");
    backend.shutdown().await;
}
