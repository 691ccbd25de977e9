//! The breaker over three replicas in real time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use testkit::eventually;

use futures_util::future::join_all;
use gate::Backend;
use gate::breaker::{Admission, Breaker, Outcome, Policy, Settings, State};
use gate::redis::Status;
use testkit::redis::Server;

use super::{REPLICAS, after, backend, now_us};
use crate::backends::key;

async fn replicas(server: &Server) -> Vec<Backend> {
    let backends: Vec<Backend> = (0..REPLICAS).map(|_| backend(&server.url(), Duration::from_secs(5))).collect();
    for backend in &backends {
        eventually(Duration::from_secs(30), "Redis", async || backend.connection() == Some(Status::Connected)).await;
    }
    backends
}

fn breakers(backends: &[Backend], settings: &Settings) -> Vec<Breaker> {
    backends.iter().map(|backend| Breaker::new(backend, Policy::new(settings).unwrap_or_default())).collect()
}

async fn call(breaker: &Breaker, outcome: Outcome) -> bool {
    match breaker.admit(&key("t")).await {
        Admission::Pass(pass) => {
            pass.record(outcome).await;
            true
        }
        Admission::Reject { .. } => false,
    }
}

/// Bar 32: one replica finds out, and within a second all know, although each believes what it heard for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_replicas_agree_within_a_second_that_a_target_fails() {
    let server = testkit::need!(Server::start());
    let backends = replicas(&server).await;
    let breakers = breakers(&backends, &Settings::default());
    for breaker in &breakers {
        assert!(call(breaker, Outcome::Success).await);
    }
    for _ in 0..5 {
        call(&breakers[0], Outcome::Failure).await;
    }
    let opened_us = now_us();
    for breaker in &breakers {
        eventually(Duration::from_secs(5), "the refusal", async || !call(breaker, Outcome::Ignored).await).await;
    }
    println!("breaker: all replicas refused after {} us", now_us() - opened_us);
    for backend in &backends {
        backend.shutdown().await;
    }
}

/// Bar 32 and pitfall 18: sixty callers on three replicas storm a half-open circuit; never more than three probes are out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_on_a_half_open_circuit_gets_three_probes_in_the_whole_fleet() {
    let server = testkit::need!(Server::start());
    let backends = replicas(&server).await;
    let settings = Settings { open: Duration::from_millis(300), refresh: Duration::ZERO, ..Settings::default() };
    let breakers = breakers(&backends, &settings);
    for _ in 0..5 {
        call(&breakers[0], Outcome::Failure).await;
    }
    let (out, most, probes) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    let storm = (0..60).map(|index| {
        let (breaker, out, most, probes) = (&breakers[index % REPLICAS], &out, &most, &probes);
        async move {
            for _ in 0..20 {
                if let Admission::Pass(pass) = breaker.admit(&key("t")).await
                    && pass.is_probe()
                {
                    probes.fetch_add(1, Ordering::SeqCst);
                    most.fetch_max(out.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    after(Duration::from_millis(50)).await;
                    out.fetch_sub(1, Ordering::SeqCst);
                    pass.record(Outcome::Success).await;
                }
                after(Duration::from_millis(20)).await;
            }
        }
    });
    join_all(storm).await;
    let (most, probes) = (most.load(Ordering::SeqCst), probes.load(Ordering::SeqCst));
    println!("breaker: {probes} probes, at most {most} at once");
    assert_eq!((most, probes), (3, 3));
    assert_eq!(breakers[1].view(&key("t")).await.state, State::Closed);
    for backend in &backends {
        backend.shutdown().await;
    }
}

/// The closed, healthy path writes nothing, and asks a few times a second at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healthy_target_costs_redis_no_write_and_hardly_a_question() {
    let server = testkit::need!(Server::start());
    let backends = replicas(&server).await;
    let breaker = Arc::new(Breaker::new(&backends[0], Policy::default()));
    call(&breaker, Outcome::Success).await;
    let scripts = || {
        let stats = server.cli(&["INFO", "commandstats"]);
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_hmget:calls="));
        calls.and_then(|rest| rest.split(',').next()).map_or(0, |calls| calls.parse::<u64>().unwrap_or(0))
    };
    let (before, started_us) = (scripts(), now_us());
    for _ in 0..5_000 {
        assert!(call(&breaker, Outcome::Success).await);
    }
    let (asked, micros) = (scripts() - before, now_us() - started_us);
    println!("breaker: 5,000 healthy calls in {micros} us asked Redis {asked} times");
    assert!(asked <= micros / 250_000 + 1, "asked {asked} times in {micros} us");
    assert_eq!(server.cli(&["EXISTS", "tg:v1:cb:{t}"]), "0");
    assert!(!server.cli(&["INFO", "commandstats"]).contains("cmdstat_hset"));
    for backend in &backends {
        backend.shutdown().await;
    }
}
