//! Three replicas, one Redis: exact in every window, whatever their clocks say.

use std::num::NonZeroU64;
use std::time::Duration;

use gate::gate::{By, Entry, Gate, Outcome};
use gate::limiter::{Algorithm, Limiter, Policy};
use gate::{Clock, breaker, semaphore};
use testkit::redis::Shared;

use crate::backends::{START_US, connected, key};
use crate::load::{Call, allowed, degraded, most_in_any_window, span};
use crate::replica::{Load, Part, Place, Replica};

const SECOND: Duration = Duration::from_secs(1);

/// Runs three replicas at once and gathers their calls, on the parent's clock.
async fn three_replicas(server: &Shared, load: Load, skews_s: [i64; 3]) -> Vec<Call> {
    let place = Place { url: server.url(), prefix: server.prefix().to_owned() };
    let mut replicas: Vec<Replica> =
        skews_s.iter().map(|skew_s| Replica::start_skewed(&place, &Part::Load(load), *skew_s)).collect();
    for replica in &mut replicas {
        assert_eq!(replica.says().await, "ready");
    }
    for replica in &mut replicas {
        replica.go().await;
    }
    let mut calls = Vec::new();
    for (replica, skew_s) in replicas.iter_mut().zip(skews_s) {
        calls.extend(replica.calls(skew_s).await);
    }
    calls
}

#[expect(clippy::print_stdout, reason = "the measured numbers are worth reading")]
fn verify(calls: &[Call], load: Load, story: &str) {
    let (most, total) = (most_in_any_window(calls, SECOND), allowed(calls));
    let used = total as f64 / (load.limit as f64 * span(calls).as_secs_f64());
    println!(
        "{story}: {} calls, {total} allowed, {most} at most in a second, {used:.4} of the limit used",
        calls.len()
    );
    assert_eq!(degraded(calls), 0, "Redis decided every call");
    assert!(most <= load.limit, "{most} calls of {} allowed within one second", load.limit);
    assert!(used >= 0.99, "only {used:.4} of the limit was used");
}

/// Bar 24, 20 seconds instead of 60: limit 1,000/s, offered 5,000/s by three processes.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn three_processes_share_a_limit_exactly() {
    let server = testkit::need!(testkit::redis());
    let load = Load { algorithm: Algorithm::SlidingLog, limit: 1_000, per_second: 1_667, lasting: SECOND * 20 };
    let calls = three_replicas(&server, load, [0, 0, 0]).await;
    verify(&calls, load, "sliding log, 5,000/s offered");
}

/// Bar 24: also when only a little more is offered than allowed, which a floored refill would not survive.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn three_processes_that_offer_just_the_limit_get_all_of_it() {
    let server = testkit::need!(testkit::redis());
    let load = Load { algorithm: Algorithm::Gcra, limit: 1_000, per_second: 337, lasting: SECOND * 5 };
    let calls = three_replicas(&server, load, [0, 0, 0]).await;
    // Replicas that a busy machine lets begin one after the other offer less than the limit: then all of that is due.
    let due = (load.limit as f64 * span(&calls).as_secs_f64()).min(calls.len() as f64);
    let used = allowed(&calls) as f64 / due;
    println!("gcra, 1,011/s offered: {used:.4} of what was due was allowed");
    assert!(used >= 0.99, "only {used:.4} of what was due was allowed");
}

/// Pitfall 2: replicas whose clocks are four minutes apart share a limit as exactly as others.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn replicas_with_skewed_clocks_share_a_limit_exactly() {
    testkit::need!(Replica::can_be_skewed());
    let server = testkit::need!(testkit::redis());
    let load = Load { algorithm: Algorithm::SlidingLog, limit: 500, per_second: 600, lasting: SECOND * 5 };
    let calls = three_replicas(&server, load, [0, 120, -120]).await;
    verify(&calls, load, "clocks at 0, +120 s and -120 s");
}

/// Pitfall 1, in real time and a tenth of it: 10 tokens a second, drained, a call each 50 ms for 6 s.
#[tokio::test]
async fn a_drained_bucket_gives_every_token_it_earns_in_real_time() {
    let server = testkit::need!(testkit::redis());
    let backend = connected(&server.url(), server.prefix(), Clock::System).await;
    let (limiter, bucket) = (Limiter::new(&backend), key("bucket"));
    let policy = Policy::new(Algorithm::TokenBucket, 10, SECOND).unwrap();
    let check = async || limiter.check(&bucket, &policy, NonZeroU64::MIN).await.is_allowed();
    while check().await {}
    let drained_us = Clock::System.now_us();
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    let mut granted = 0;
    for _ in 0..120 {
        ticks.tick().await;
        granted += u64::from(check().await);
    }
    // 60, and more if the last of them came late.
    let earned = (Clock::System.now_us() - drained_us) / 100_000;
    assert!(granted >= 59 && granted <= earned + 1, "{granted} of {earned}");
    backend.shutdown().await;
}

/// Pitfall 1: capacity 10, one token a second, drained, a call each 500 ms for 60 s.
#[tokio::test]
async fn a_drained_bucket_gives_every_token_it_earns() {
    let server = testkit::need!(testkit::redis());
    for algorithm in [Algorithm::TokenBucket, Algorithm::Gcra, Algorithm::LeakyBucket] {
        let clock = Clock::manual(START_US);
        let backend = connected(&server.url(), server.prefix(), clock.clone()).await;
        let (limiter, bucket) = (Limiter::new(&backend), key(&format!("{algorithm:?}")));
        let policy = Policy::new(algorithm, 1, SECOND).and_then(|policy| policy.burst(10)).unwrap();
        let check = async || limiter.check(&bucket, &policy, NonZeroU64::MIN).await.is_allowed();
        let mut drained = 0;
        while check().await {
            drained += 1;
        }
        assert_eq!(drained, 10);
        let mut granted = 0;
        for _ in 0..120 {
            clock.advance(Duration::from_millis(500));
            granted += u32::from(check().await);
        }
        assert!((59..=61).contains(&granted), "{algorithm:?}: {granted} of 60 ± 1");
        backend.shutdown().await;
    }
}

/// Rates and permits are the fleet's; which targets fail, each process finds out alone, and tells nobody.
#[tokio::test]
async fn with_circuits_of_its_own_a_process_shares_all_but_them() {
    let server = testkit::need!(testkit::redis());
    let clock = Clock::manual(START_US);
    let mut backends = Vec::new();
    for _ in 0..2 {
        backends.push(connected(&server.url(), server.prefix(), clock.clone()).await.with_own_circuits());
    }
    let [here, there] = [&backends[0], &backends[1]].map(Gate::new);
    let settings = breaker::Settings { failures: 2, probes: 1, open: SECOND, ..breaker::Settings::default() };
    let policy = gate::gate::Policy::default()
        .circuit(breaker::Policy::new(&settings).unwrap())
        .concurrency(semaphore::Policy::new(1, SECOND * 10).unwrap());
    let enter = async |gate: &Gate| match gate.enter(&key("api"), &policy, NonZeroU64::MIN).await {
        Entry::Pass(pass) => Ok(pass),
        Entry::Refused(refused) => Err((refused.by, refused.degraded)),
    };
    for _ in 0..2 {
        enter(&here).await.unwrap().exit(Outcome::Failure).await;
    }
    assert_eq!(enter(&here).await.unwrap_err(), (By::Circuit, false));
    assert_eq!(here.breaker().view(&key("api")).await.state, breaker::State::Open);
    let held = enter(&there).await.unwrap();
    assert!(!held.is_probe());

    // The probe of the one is refused by the permit of the other, and is there for the next.
    clock.advance(SECOND);
    assert_eq!(enter(&here).await.unwrap_err(), (By::Concurrency, false));
    held.exit(Outcome::Success).await;
    let probe = enter(&here).await.unwrap();
    assert!(probe.is_probe());
    probe.exit(Outcome::Success).await;
    assert_eq!(here.breaker().view(&key("api")).await.state, breaker::State::Closed);
    for backend in backends {
        assert!(!backend.fallback().is_active(), "Redis must have decided");
        backend.shutdown().await;
    }
}
