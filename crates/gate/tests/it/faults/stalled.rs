//! Redis is there and does not answer: stopped, slow, flapping, or without its scripts.

use std::num::NonZeroU64;
use std::time::Duration;
use testkit::eventually;

use futures_util::future::join_all;
use gate::gate::{Gate, Policy as Gates};
use gate::limiter::Limiter;
use gate::redis::Status;
use gate::semaphore::{Acquired, Policy, Semaphore};
use gate::{Backend, fallback};
use testkit::proxy::{Direction, FaultProxy, Faults};
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

const LONG: Duration = Duration::from_secs(30);

async fn connected(url: &str) -> Backend {
    let backend = backend(url, fallback::Config::default().deadline);
    eventually(LONG, "Redis", async || backend.connection() == Some(Status::Connected)).await;
    backend
}

/// Redis stood still for a moment and gave permits to callers that no longer waited. They took them back only as long
/// as they trusted Redis, so most were held for a whole lease.
#[tokio::test]
async fn a_permit_that_comes_too_late_is_taken_back_also_by_who_decides_alone_by_then() {
    let server = testkit::need!(Server::start());
    let backend = connected(&server.url()).await;
    let permits = Policy::new(100, Duration::from_secs(3_600)).unwrap();
    let (gate, semaphore) = (Gate::new(&backend), Semaphore::new(&backend, permits));
    let (target, key, policy) = (key("gate"), key("semaphore"), Gates::default().concurrency(permits));
    // A server that does not know a script yet does not run it until it is told, which nobody is there to do later.
    drop((gate.enter(&target, &policy, NonZeroU64::MIN).await, semaphore.try_acquire(&key).await));
    for name in ["gate", "semaphore"] {
        eventually(LONG, "the first permit to be back", async || held(&server, name) == 0).await;
    }
    server.stop();
    let entries = join_all((0..40).map(|_| gate.enter(&target, &policy, NonZeroU64::MIN)));
    let permits = join_all((0..40).map(|_| semaphore.try_acquire(&key)));
    drop(tokio::join!(entries, permits));
    assert!(backend.fallback().is_active());
    server.resume();
    // The line keeps its order: whatever was asked before has been answered then.
    backend.ping().await.unwrap();
    for name in ["gate", "semaphore"] {
        eventually(LONG, "nobody to hold a permit", async || held(&server, name) == 0).await;
    }
    backend.shutdown().await;
}

#[tokio::test]
async fn a_permit_whose_answer_was_lost_with_the_line_is_taken_back_over_the_next() {
    let server = testkit::need!(Server::start());
    let proxy = FaultProxy::start(("127.0.0.1", server.port()));
    let backend = connected(&format!("redis://{}/", proxy.addr())).await.patient(LONG);
    let semaphore = Semaphore::new(&backend, Policy::new(100, Duration::from_secs(3_600)).unwrap());
    drop(semaphore.try_acquire(&key("warm")).await);
    eventually(LONG, "the first permit to be back", async || held(&server, "warm") == 0).await;
    proxy.set_one(Direction::ToClient, Faults { black_hole: true, ..Faults::default() });
    let cut = async {
        eventually(LONG, "Redis to give a permit", async || held(&server, "a") == 1).await;
        proxy.set(Faults { reset: true, black_hole: true, ..Faults::default() });
    };
    let key = key("a");
    let (permit, ()) = tokio::join!(semaphore.try_acquire(&key), cut);
    assert!(matches!(&permit, Acquired::Permit(permit) if permit.is_degraded()), "{permit:?}");
    drop(permit);
    proxy.heal();
    eventually(LONG, "nobody to hold a permit", async || held(&server, "a") == 0).await;
    backend.shutdown().await;
}

fn held(server: &Server, name: &str) -> u32 {
    server.cli(&["ZCARD", &format!("tg:v1:sem:{{{name}}}")]).trim().parse().expect("ZCARD answers a number")
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
