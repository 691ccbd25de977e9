//! A cluster changes its shape under load.

use std::num::NonZeroU64;
use std::time::Duration;
use testkit::eventually;

use gate::limiter::Limiter;
use gate::redis::Status;
use testkit::redis::Cluster;

use super::{after, backend, now_us, policy};
use crate::backends::{cluster_url, key};
use crate::load::{degraded, offer};

/// Bar 29: slots move and a master hands over while calls go on: no error, and hardly a decision without Redis.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_resharded_and_fails_over_under_load_and_callers_do_not_notice() {
    let cluster = testkit::need!(Cluster::with_replicas());
    let backend = backend(&cluster_url(&cluster), Duration::from_secs(2));
    eventually(Duration::from_secs(30), "the cluster", async || backend.connection() == Some(Status::Connected)).await;
    let limiter = Limiter::new(&backend);
    let keys: Vec<_> = (0..20).map(|index| key(&format!("loaded {index}"))).collect();
    for key in &keys {
        limiter.check(key, &policy(), NonZeroU64::MIN).await;
    }
    let slots: Vec<u16> = keys.iter().map(|key| cluster.slot_of(key.as_str())).collect();
    let loads = keys.iter().map(|key| offer(&limiter, key, policy(), 50, Duration::from_secs(8)));
    let change = async {
        after(Duration::from_millis(500)).await;
        // Not in this task: the calls go on meanwhile.
        let changed = tokio::task::spawn_blocking(move || {
            for slot in &slots[..10] {
                let from = cluster.owner_of(*slot).expect("every slot is served");
                cluster.reshard(*slot..=*slot, from, (from + 1) % 3);
            }
            cluster.failover(0);
            cluster
        });
        let cluster = changed.await.expect("the cluster changes");
        (cluster, now_us())
    };
    let (calls, (_cluster, changed_us)) = tokio::join!(futures_util::future::join_all(loads), change);
    let calls = calls.concat();
    println!("cluster: {} of {} decided by fallback", degraded(&calls), calls.len());
    assert!(calls.iter().any(|call| call.sent_us > changed_us), "the load outlasts the change");
    assert!(degraded(&calls) * 1_000 <= calls.len() as u64, "{} of {}", degraded(&calls), calls.len());
    backend.shutdown().await;
}

/// A killed master is replaced by its replica, and its keys are decided by Redis again, without a restart of ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_whose_master_is_killed_decides_again_when_its_replica_takes_over() {
    let cluster = testkit::need!(Cluster::with_replicas());
    let backend = backend(&cluster_url(&cluster), Duration::from_secs(2));
    eventually(Duration::from_secs(30), "the cluster", async || backend.connection() == Some(Status::Connected)).await;
    let limiter = Limiter::new(&backend);
    let keys: Vec<_> = (0..20).map(|index| key(&format!("loaded {index}"))).collect();
    let ask = async |index: usize| limiter.check(&keys[index], &policy(), NonZeroU64::MIN).await;
    tokio::task::block_in_place(|| {
        cluster.kill(0);
        cluster.wait_for_failover(0);
    });
    for index in 0..keys.len() {
        eventually(Duration::from_secs(60), "Redis to decide every key", async || !ask(index).await.degraded).await;
    }
    backend.shutdown().await;
}
