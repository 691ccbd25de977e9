//! Redis is killed, emptied, restarted empty, or was never there.

use std::num::NonZeroU64;
use std::time::Duration;
use testkit::eventually;

use gate::limiter::Limiter;
use gate::{Backend, fallback};
use testkit::proxy::{FaultProxy, Faults};
use testkit::redis::Server;

use super::{BURST, Fleet, LIMIT, REPLICAS, after, now_us, policy};
use crate::backends::key;
use crate::load::{Call, allowed, degraded, percentile};

/// What may be admitted in this time at most, with this much more.
fn bound(factor: f64, micros: u64, bursts: u64) -> u64 {
    let steady = factor * LIMIT as f64 * micros as f64 / 1e6;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
    let steady = steady.ceil() as u64;
    steady + bursts * BURST + REPLICAS as u64
}

fn since(calls: &[Call], from_us: u64) -> Vec<Call> {
    between(calls, from_us, u64::MAX)
}

fn between(calls: &[Call], from_us: u64, to_us: u64) -> Vec<Call> {
    calls.iter().filter(|call| (from_us..to_us).contains(&call.sent_us)).copied().collect()
}

/// Bar 25, 6 s instead of 60, and pitfall 16: without Redis the replicas share the limit instead of each taking it all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_redis_is_replaced_at_once_by_each_replicas_share() {
    let server = testkit::need!(Server::start());
    let fleet = Fleet::connect(&vec![server.url(); REPLICAS]).await;
    let kill = async {
        after(Duration::from_secs(2)).await;
        server.kill();
        now_us()
    };
    let (calls, killed_us) = tokio::join!(fleet.load(Duration::from_secs(6)), kill);
    let outage = since(&calls, killed_us);
    let first_us = outage.iter().filter(|call| call.degraded).map(|call| call.answered_us).min();
    let lasting_us = outage.iter().map(|call| call.sent_us).max().unwrap_or(0) - killed_us;
    let (admitted, expected) = (allowed(&outage), LIMIT * lasting_us / 1_000_000);
    println!(
        "killed: fallback after {} us, p99 {:?}, {admitted} admitted where {expected} are right",
        first_us.map_or(0, |first_us| first_us.saturating_sub(killed_us)),
        percentile(&outage, 99),
    );
    assert!(first_us.is_some_and(|first_us| first_us <= killed_us + 1_000_000), "fallback at once");
    // Whoever waited for Redis would wait for its deadline.
    let took = percentile(&outage, 75);
    assert!(took <= fallback::Config::default().deadline / 2, "{took:?}");
    assert!(admitted <= bound(1.05, lasting_us, 1), "{admitted} of {expected}");
    // What is due while the machine stands still comes all at once, and then it is more than a burst.
    assert!(admitted * 2 >= expected, "{admitted} of {expected}");
    fleet.shutdown().await;
}

/// Bar 28, flushed: one more burst and no more, and exact again at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_redis_lets_one_more_burst_through() {
    let server = testkit::need!(Server::start());
    let fleet = Fleet::patient(&vec![server.url(); REPLICAS]).await;
    let (started_us, flush) = (now_us(), async {
        after(Duration::from_secs(2)).await;
        server.cli(&["FLUSHALL"]);
    });
    let (calls, ()) = tokio::join!(fleet.load(Duration::from_secs(4)), flush);
    let lasting_us = now_us() - started_us;
    println!("flushed: {} admitted in {lasting_us} us", allowed(&calls));
    assert!(allowed(&calls) <= bound(1.0, lasting_us, 2), "{} in {lasting_us} us", allowed(&calls));
    fleet.shutdown().await;
}

/// Bar 28, restarted empty: shares while it is away, one more burst when it is back, then Redis decides again. Over a line
/// that takes its time: while traffic returned, answers that came late once set the replicas' own clocks back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_comes_back_empty_decides_again_after_one_more_burst() {
    let server = testkit::need!(Server::start());
    let proxy = FaultProxy::start(("127.0.0.1", server.port()));
    proxy.set(Faults { latency: Duration::from_millis(10), ..Faults::default() });
    let fleet = Fleet::patient(&vec![format!("redis://{}/", proxy.addr()); REPLICAS]).await;
    let (started_us, restart) = (now_us(), async {
        after(Duration::from_secs(1)).await;
        server.kill();
        after(Duration::from_millis(500)).await;
        server.restart();
    });
    let (calls, ()) = tokio::join!(fleet.load(Duration::from_secs(12)), restart);
    let lasting_us = now_us() - started_us;
    let last_second = since(&calls, now_us() - 1_000_000);
    println!("restarted: {} admitted in {lasting_us} us", allowed(&calls));
    assert!(allowed(&calls) <= bound(1.02, lasting_us, 2), "{} in {lasting_us} us", allowed(&calls));
    assert_eq!((degraded(&last_second), fleet.is_any_degraded()), (0, false), "Redis decides again");
    fleet.shutdown().await;
}

/// Bar 28: replicas whose lines come back one after the other do not give the last one's share twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_back_before_the_others_keeps_to_its_share_until_they_are() {
    let server = testkit::need!(Server::start());
    let proxies: Vec<FaultProxy> = (0..REPLICAS).map(|_| FaultProxy::start(("127.0.0.1", server.port()))).collect();
    let urls: Vec<String> = proxies.iter().map(|proxy| format!("redis://{}/", proxy.addr())).collect();
    let fleet = Fleet::patient(&urls).await;
    let is_back = |replica: usize| !fleet.backends[replica].fallback().is_active();
    let (calls, [first_back_us, last_back_us]) = tokio::join!(fleet.load(Duration::from_secs(20)), async {
        proxies.iter().for_each(|proxy| proxy.set(Faults { reset: true, ..Faults::default() }));
        eventually(Duration::from_secs(5), "every replica to decide alone", async || !(0..REPLICAS).any(is_back)).await;
        proxies[1..].iter().for_each(FaultProxy::heal);
        eventually(Duration::from_secs(10), "most to be back", async || (1..REPLICAS).all(is_back)).await;
        let first_back_us = now_us();
        // Shorter than it takes the others to believe that there are fewer of them.
        after(Duration::from_secs(4)).await;
        proxies[0].heal();
        eventually(Duration::from_secs(10), "all to be back", async || is_back(0)).await;
        [first_back_us, now_us()]
    });
    let meanwhile = between(&calls, first_back_us, last_back_us);
    let (admitted, lasting_us) = (allowed(&meanwhile), last_back_us - first_back_us);
    let last_second = since(&calls, now_us() - 1_000_000);
    println!("one after the other: {admitted} admitted in {lasting_us} us");
    assert!(admitted <= bound(1.0, lasting_us, 1), "{admitted} in {lasting_us} us");
    assert_eq!(degraded(&last_second), 0, "Redis decides again");
    fleet.shutdown().await;
}

/// Pitfall 17: a crash loop at start without Redis.
#[tokio::test]
async fn a_replica_starts_without_redis_says_so_and_takes_it_when_it_comes() {
    let server = testkit::need!(Server::start());
    server.kill();
    let backend = Backend::redis(&server.url()).unwrap();
    let limiter = Limiter::new(&backend);
    let ask = async || limiter.check(&key("a"), &policy(), NonZeroU64::MIN).await;
    let decision = ask().await;
    assert!(decision.is_allowed() && decision.degraded, "{decision:?}");
    server.restart();
    eventually(Duration::from_secs(30), "Redis to decide", async || !ask().await.degraded).await;
    backend.shutdown().await;
}
