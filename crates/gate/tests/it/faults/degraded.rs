//! Breaker, semaphore and once when Redis goes and comes: what each process does alone, and what it never does.

use std::num::NonZeroU64;
use std::time::Duration;
use testkit::eventually;

use gate::breaker::{Admission, Breaker, Outcome, Policy as Circuits, Settings};
use gate::gate::{Entry, Exit, Gate, Policy};
use gate::once::{Claimed, Once, Policy as Claims};
use gate::redis::Status;
use gate::semaphore::{Acquired, Policy as Permits, Semaphore};
use gate::{Backend, Key};
use testkit::proxy::{FaultProxy, Faults};
use testkit::redis::Server;

use super::{backend, now_us};
use crate::backends::key;

const LONG: Duration = Duration::from_secs(30);

async fn connected(server: &Server) -> Backend {
    let backend = backend(&server.url(), Duration::from_secs(2));
    eventually(LONG, "Redis", async || backend.connection() == Some(Status::Connected)).await;
    backend
}

fn breaker(backend: &Backend, settings: &Settings) -> Breaker {
    Breaker::new(backend, Circuits::new(settings).unwrap_or_default())
}

async fn pass(breaker: &Breaker, target: &Key) -> gate::breaker::Pass {
    match breaker.admit(target).await {
        Admission::Pass(pass) => pass,
        reject @ Admission::Reject { .. } => panic!("expected a pass, got {reject:?}"),
    }
}

/// A circuit that the fleet opened stays open without Redis; a report for a pass of Redis' is no report here.
#[tokio::test]
async fn without_redis_an_open_circuit_stays_open_and_reports_go_to_whoever_gave_the_pass() {
    let server = testkit::need!(Server::start());
    let backend = connected(&server).await;
    let breaker = breaker(&backend, &Settings { refresh: Duration::ZERO, ..Settings::default() });
    let (failing, fine) = (key("failing"), key("fine"));
    for _ in 0..5 {
        pass(&breaker, &failing).await.record(Outcome::Failure).await;
    }
    assert!(matches!(breaker.admit(&failing).await, Admission::Reject { degraded: false, .. }));
    let mut by_redis = Vec::new();
    for _ in 0..10 {
        by_redis.push(pass(&breaker, &fine).await);
    }
    server.kill();
    let answer = breaker.admit(&failing).await;
    assert!(matches!(answer, Admission::Reject { degraded: true, .. }), "{answer:?}");
    for pass in by_redis {
        pass.record(Outcome::Failure).await;
    }
    assert_eq!(breaker.view(&fine).await.failures, 0, "ten failures of passes that Redis gave");
    for _ in 0..5 {
        let pass = pass(&breaker, &fine).await;
        assert!(pass.is_degraded());
        pass.record(Outcome::Failure).await;
    }
    let answer = breaker.admit(&fine).await;
    assert!(matches!(answer, Admission::Reject { degraded: true, .. }), "this process found out by itself: {answer:?}");
    backend.shutdown().await;
}

/// The permit and the report go in one step: where the circuit cannot hear, nothing is freed and nothing is claimed.
#[tokio::test]
async fn a_pass_on_paper_ends_whole_or_not_at_all() {
    let server = testkit::need!(Server::start());
    let backend = connected(&server).await;
    let gate = Gate::new(&backend);
    let policy = Policy::default().circuit(Circuits::default()).concurrency(Permits::new(1, LONG).unwrap());
    let Entry::Pass(pass) = gate.enter(&key("a"), &policy, NonZeroU64::MIN).await else { panic!("nobody is here") };
    let token = pass.detach();
    let exit = async || gate.exit(&key("a"), &policy, &token, Outcome::Failure, Duration::ZERO).await;
    server.cli(&["SET", "tg:v1:cb:{a}", "not a circuit"]);
    assert_eq!((exit().await, gate.semaphore().held(&key("a")).await), (Exit::Unheard, 1));
    server.cli(&["DEL", "tg:v1:cb:{a}"]);
    assert_eq!((exit().await, gate.semaphore().held(&key("a")).await), (Exit::Counted, 0));
    assert_eq!(gate.breaker().view(&key("a")).await.failures, 1);
    backend.shutdown().await;
}

/// Pitfall 20: of two replicas with a quorum of two, the one whose calls all fail stops alone.
#[tokio::test]
async fn with_a_quorum_a_replica_in_trouble_stops_alone() {
    let server = testkit::need!(Server::start());
    let backends = [connected(&server).await, connected(&server).await];
    for backend in &backends {
        eventually(LONG, "both replicas", async || backend.fallback().replicas() == 2).await;
    }
    let settings = Settings { quorum: 2, refresh: Duration::ZERO, ..Settings::default() };
    let [broken, healthy] = backends.each_ref().map(|backend| breaker(backend, &settings));
    let target = key("t");
    for _ in 0..5 {
        pass(&broken, &target).await.record(Outcome::Failure).await;
    }
    assert!(matches!(broken.admit(&target).await, Admission::Reject { .. }), "its own circuit is open");
    for _ in 0..20 {
        pass(&healthy, &target).await.record(Outcome::Success).await;
    }
    for _ in 0..5 {
        pass(&healthy, &target).await.record(Outcome::Failure).await;
    }
    assert!(matches!(healthy.admit(&target).await, Admission::Reject { .. }), "two of two have seen it fail");
    for backend in &backends {
        backend.shutdown().await;
    }
}

/// Permits given without Redis are counted in it when it is back, so the fleet does not hold twice the limit.
#[tokio::test]
async fn permits_given_without_redis_are_counted_when_it_is_back() {
    let server = testkit::need!(Server::start());
    let backend = connected(&server).await;
    let semaphore = Semaphore::new(&backend, Permits::new(2, Duration::from_secs(3)).unwrap());
    server.kill();
    let Acquired::Permit(first) = semaphore.try_acquire(&key("a")).await else { panic!("two are free") };
    let Acquired::Permit(_second) = semaphore.try_acquire(&key("a")).await else { panic!("one is free") };
    assert!(first.is_degraded());
    server.restart();
    eventually(LONG, "Redis to know of both", async || server.cli(&["ZCARD", "tg:v1:sem:{a}"]) == "2").await;
    eventually(LONG, "Redis to decide", async || !backend.fallback().is_active()).await;
    let third = semaphore.try_acquire(&key("a")).await;
    assert!(matches!(third, Acquired::Full { .. }), "{third:?}");
    assert!(first.release().await);
    eventually(LONG, "Redis to know of the release", async || server.cli(&["ZCARD", "tg:v1:sem:{a}"]) == "1").await;
    backend.shutdown().await;
}

/// Replicas whose lines come back one after the other do not give the places of the last one's share twice.
#[tokio::test]
async fn a_replica_that_is_back_first_takes_no_permit_of_the_others() {
    let make = |backend: &Backend| Semaphore::new(backend, Permits::new(PLACES, LONG).unwrap());
    back_first(make, async |semaphore, key| match semaphore.try_acquire(&key).await {
        Acquired::Permit(permit) => Some(permit),
        Acquired::Full { .. } => None,
    })
    .await;
}

#[tokio::test]
async fn nor_does_a_gate() {
    let policy = Policy::default().concurrency(Permits::new(PLACES, LONG).unwrap());
    back_first(Gate::new, async |gate, key| match gate.enter(&key, &policy, NonZeroU64::MIN).await {
        Entry::Pass(pass) => Some(pass),
        Entry::Refused(_) => None,
    })
    .await;
}

const PLACES: u32 = 10;

async fn back_first<T, P>(make: impl Fn(&Backend) -> T, take: impl AsyncFn(&T, Key) -> Option<P>) {
    let server = testkit::need!(Server::start());
    let proxies = [0, 1].map(|_| FaultProxy::start(("127.0.0.1", server.port())));
    let backends =
        proxies.each_ref().map(|proxy| backend(&format!("redis://{}/", proxy.addr()), Duration::from_secs(2)));
    for backend in &backends {
        eventually(LONG, "both replicas", async || backend.fallback().replicas() == 2).await;
    }
    let [first, last] = backends.each_ref().map(make);
    let fill = async |of: &T, held: &mut Vec<P>| {
        while let Some(place) = take(of, key("a")).await {
            held.push(place);
        }
    };
    proxies.iter().for_each(|proxy| proxy.set(Faults { reset: true, ..Faults::default() }));
    for (replica, backend) in [&first, &last].into_iter().zip(&backends) {
        eventually(LONG, "it to decide alone", async || {
            drop(take(replica, key("b")).await);
            backend.fallback().is_active()
        })
        .await;
    }
    let (mut of_first, mut of_last) = (Vec::new(), Vec::new());
    fill(&last, &mut of_last).await;
    assert_eq!(of_last.len(), 5, "its share");
    proxies[0].heal();
    eventually(LONG, "the first to be back", async || !backends[0].fallback().is_active()).await;
    // Longer than its traffic takes to return, and shorter than it takes to believe that it is alone.
    let mut asks = tokio::time::interval(Duration::from_millis(20));
    for _ in 0..200 {
        asks.tick().await;
        fill(&first, &mut of_first).await;
        assert!(of_first.len() <= 5, "{} of {PLACES} beside the other's 5", of_first.len());
    }
    proxies[1].heal();
    of_last.clear();
    eventually(2 * LONG, "all places for whoever asks", async || {
        fill(&first, &mut of_first).await;
        of_first.len() == PLACES as usize
    })
    .await;
    for backend in &backends {
        backend.shutdown().await;
    }
}

/// Pitfall 22: a fence never repeats, not even when Redis forgot everything.
#[tokio::test]
async fn fences_grow_across_an_emptied_redis_and_claims_stay_with_whoever_gave_them() {
    let server = testkit::need!(Server::start());
    let backend = connected(&server).await;
    let once = Once::new(&backend, Claims::new(LONG, LONG).unwrap());
    let Claimed::Won(first) = once.claim(&key("a")).await else { panic!("nobody claimed it") };
    server.cli(&["FLUSHALL"]);
    let Claimed::Won(second) = once.claim(&key("a")).await else { panic!("nobody is known to have claimed it") };
    assert!(second.fence() > first.fence());
    assert!(!first.complete("first").await.unwrap(), "the name is another's now");
    server.kill();
    assert!(second.complete("second").await.is_err(), "Redis gave the claim, and only Redis can end it");
    let Claimed::Won(local) = once.claim(&key("a")).await else { panic!("this process knows of no claim") };
    assert!(local.is_degraded() && local.complete("local").await.unwrap());
    backend.shutdown().await;
}

/// A holder that cannot renew is told when its lease is over by its own clock, not when Redis finds the time to say so.
#[tokio::test]
async fn a_holder_that_cannot_renew_is_told_when_its_lease_is_over() {
    let server = testkit::need!(Server::start());
    let backend = connected(&server).await;
    let semaphore = Semaphore::new(&backend, Permits::new(1, Duration::from_secs(2)).unwrap());
    let Acquired::Permit(permit) = semaphore.try_acquire(&key("a")).await else { panic!("one is free") };
    assert!(!permit.is_degraded() && !permit.is_lost());
    server.stop();
    let stopped_us = now_us();
    tokio::time::timeout(LONG, permit.lost()).await.expect("the holder is told");
    let told_after = Duration::from_micros(now_us() - stopped_us);
    // The last renewal was a third of the lease before, or more where the machine is busy; one more attempt may cost a
    // deadline.
    assert!(told_after >= Duration::from_millis(500), "told after {told_after:?}");
    assert!(told_after <= Duration::from_secs(6), "told after {told_after:?}");
    server.resume();
    backend.shutdown().await;
}
