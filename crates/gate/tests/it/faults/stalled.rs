//! Redis is there and does not answer: stopped, slow, flapping, or without its scripts.

use std::num::NonZeroU64;
use std::time::Duration;
use testkit::eventually;

use gate::fallback;
use gate::limiter::Limiter;
use gate::semaphore::{Acquired, Policy, Semaphore};
use testkit::proxy::{FaultProxy, Faults};
use testkit::redis::Server;

use super::{BURST, Fleet, LIMIT, REPLICAS, after, backend, now_us, policy};
use crate::backends::key;
use crate::load::{Call, allowed, degraded, percentile};

/// How long those waited who waited for Redis. Who comes all at once after a moment in which the machine stood still waits
/// too, but not as long.
fn waited(calls: &[Call]) -> Duration {
    let deadline = fallback::Config::default().deadline;
    let waited: Vec<Call> = calls.iter().filter(|call| call.latency() >= deadline * 9 / 10).copied().collect();
    assert!(!waited.is_empty(), "nobody waited");
    percentile(&waited, 50)
}

/// Bar 26, 5 s: a stopped Redis costs nobody more than the deadline, and each call is counted at most once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_redis_costs_a_caller_the_deadline_and_no_more() {
    let server = testkit::need!(Server::start());
    let fleet = Fleet::connect(&vec![server.url(); REPLICAS]).await;
    let (started_us, stop) = (now_us(), async {
        after(Duration::from_secs(1)).await;
        server.stop();
        after(Duration::from_secs(3)).await;
        server.resume();
    });
    let (calls, ()) = tokio::join!(fleet.load(Duration::from_secs(5)), stop);
    let lasting_us = now_us() - started_us;
    let deadline = fallback::Config::default().deadline;
    let (most, waited) = (percentile(&calls, 90), waited(&calls));
    println!("stopped: {most:?}, {waited:?} for Redis, {} admitted in {lasting_us} us", allowed(&calls));
    assert!(most <= deadline + Duration::from_millis(5), "{most:?}");
    assert!(waited <= deadline * 3 / 2, "{waited:?}");
    assert!(degraded(&calls) > 0);
    let right = LIMIT * lasting_us / 1_000_000;
    assert!(allowed(&calls) <= right * 105 / 100 + BURST + REPLICAS as u64, "{} of {right}", allowed(&calls));
    fleet.shutdown().await;
}

/// Bar 26 with a network that delays by 200 ms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_line_costs_a_caller_the_deadline_and_no_more() {
    let server = testkit::need!(Server::start());
    let proxy = FaultProxy::start(("127.0.0.1", server.port()));
    let url = format!("redis://127.0.0.1:{}/", proxy.port());
    let fleet = Fleet::connect(&vec![url; REPLICAS]).await;
    let slow = async {
        after(Duration::from_secs(1)).await;
        proxy.set(Faults { latency: Duration::from_millis(100), ..Faults::default() });
    };
    let (calls, ()) = tokio::join!(fleet.load(Duration::from_secs(4)), slow);
    let deadline = fallback::Config::default().deadline;
    let (most, waited) = (percentile(&calls, 90), waited(&calls));
    println!("slow line: {most:?}, {waited:?} for Redis");
    assert!(most <= deadline + Duration::from_millis(5), "{most:?}");
    assert!(waited <= deadline * 3 / 2, "{waited:?}");
    fleet.shutdown().await;
}

#[tokio::test]
async fn whoever_can_wait_gets_a_late_answer_where_others_decide_alone() {
    let server = testkit::need!(Server::start());
    let proxy = FaultProxy::start(("127.0.0.1", server.port()));
    let backend = backend(&format!("redis://127.0.0.1:{}/", proxy.port()), fallback::Config::default().deadline);
    let (hasty, patient) = (Limiter::new(&backend), Limiter::new(&backend.patient(Duration::from_secs(30))));
    assert!(!patient.check(&key("late"), &policy(), NonZeroU64::MIN).await.degraded);
    proxy.set(Faults { latency: Duration::from_millis(100), ..Faults::default() });
    assert!(!patient.check(&key("late"), &policy(), NonZeroU64::MIN).await.degraded);
    assert!(hasty.check(&key("late"), &policy(), NonZeroU64::MIN).await.degraded);
    backend.shutdown().await;
}

/// Bar 27, 12 s instead of 60: 200 ms up, 200 ms down. At most twelve changes a minute are two in this time, and one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flapping_redis_changes_the_mode_rarely_and_the_limit_hardly() {
    let server = testkit::need!(Server::start());
    let fleet = Fleet::connect(&vec![server.url(); REPLICAS]).await;
    let lasting = Duration::from_secs(12);
    let started_us = now_us();
    let flap = async {
        for _ in 0..30 {
            server.stop();
            after(Duration::from_millis(200)).await;
            server.resume();
            after(Duration::from_millis(200)).await;
        }
    };
    let watch = async {
        let (mut changes, mut was_active) = (0, false);
        while now_us() - started_us < 12_000_000 {
            let is_active = fleet.backends[0].fallback().is_active();
            changes += u32::from(is_active != was_active);
            was_active = is_active;
            after(Duration::from_millis(5)).await;
        }
        changes
    };
    let (calls, (), changes) = tokio::join!(fleet.load(lasting), flap, watch);
    let right = LIMIT * (now_us() - started_us) / 1_000_000;
    println!("flapping: {changes} changes, {} admitted where {right} are right", allowed(&calls));
    assert!(changes <= 3, "{changes} changes in 12 s");
    assert!(allowed(&calls) <= right * 110 / 100 + BURST + REPLICAS as u64, "{} of {right}", allowed(&calls));
    fleet.shutdown().await;
}

/// Bar 30 and pitfall 13: scripts vanish every 100 ms, and nobody notices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_forgets_its_scripts_is_told_them_again_within_the_call() {
    let server = testkit::need!(Server::start());
    let fleet = Fleet::patient(&vec![server.url(); REPLICAS]).await;
    let started_us = now_us();
    let flush = async {
        for _ in 0..30 {
            server.cli(&["SCRIPT", "FLUSH"]);
            after(Duration::from_millis(100)).await;
        }
    };
    let (calls, ()) = tokio::join!(fleet.load(Duration::from_secs(3)), flush);
    let right = LIMIT * (now_us() - started_us) / 1_000_000;
    println!(
        "script flush: {} of {} by fallback, {} admitted of {right}",
        degraded(&calls),
        calls.len(),
        allowed(&calls)
    );
    assert_eq!(degraded(&calls), 0);
    assert!(allowed(&calls) <= right + BURST, "nothing is charged twice or not at all: {} of {right}", allowed(&calls));
    fleet.shutdown().await;
}

/// Bar 30: a Redis that evicts is reported, and permits are not entrusted to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_evicts_is_reported_and_permits_stay_within_the_limit() {
    let server = testkit::need!(Server::start_with(&["--maxmemory", "10mb", "--maxmemory-policy", "allkeys-lru"]));
    let backend = backend(&server.url(), Duration::from_secs(5));
    eventually(Duration::from_secs(30), "the warning", async || backend.fallback().may_evict()).await;
    let semaphore = Semaphore::new(&backend, Policy::new(2, Duration::from_secs(30)).unwrap());
    let Acquired::Permit(_first) = semaphore.acquire(&key("a"), Duration::from_secs(5)).await else { panic!("free") };
    let Acquired::Permit(_second) = semaphore.acquire(&key("a"), Duration::from_secs(5)).await else { panic!("free") };
    let junk = "x".repeat(100_000);
    for index in 0..300 {
        server.cli(&["SET", &format!("junk {index}"), &junk]);
        let third = semaphore.try_acquire(&key("a")).await;
        assert!(matches!(third, Acquired::Full { degraded: true, .. }), "after {index} of 300: {third:?}");
    }
    let evicted = server.cli(&["INFO", "stats"]);
    assert!(!evicted.contains("evicted_keys:0"), "30 MB were written into 10 MB");
    backend.shutdown().await;
}
