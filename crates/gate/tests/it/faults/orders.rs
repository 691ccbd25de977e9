//! Orders by hand over two replicas: one that Redis took holds, and ends, wherever it was given.

use std::num::NonZeroU64;
use std::time::Duration;
use testkit::eventually;

use gate::breaker::{Admission, Breaker, Force, Outcome, Policy, Settings, State};
use gate::gate::{By, Entry, Gate, Policy as Gates, Refused};
use gate::redis::Status;
use gate::{Backend, Key};
use testkit::redis::Server;

use super::backend;
use crate::backends::key;

const LONG: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_hours(1);

/// Two replicas that know of each other.
async fn replicas(server: &Server) -> [Backend; 2] {
    let backends = [0, 1].map(|_| backend(&server.url(), Duration::from_secs(2)));
    for backend in &backends {
        eventually(LONG, "both replicas", async || {
            backend.connection() == Some(Status::Connected) && backend.fallback().replicas() == 2
        })
        .await;
    }
    backends
}

fn breaker(backend: &Backend, quorum: u32) -> Breaker {
    let settings = Settings { quorum, refresh: Duration::ZERO, ..Settings::default() };
    Breaker::new(backend, Policy::new(&settings).expect("the settings are valid"))
}

async fn is_admitted(breaker: &Breaker, target: &Key) -> bool {
    matches!(breaker.admit(target).await, Admission::Pass(_))
}

async fn shutdown(backends: &[Backend]) {
    for backend in backends {
        backend.shutdown().await;
    }
}

/// With a quorum a process asks its own circuit too, which must not remember an order that another replica has lifted.
#[tokio::test]
async fn an_order_that_is_lifted_at_another_replica_is_lifted_where_it_was_given() {
    let server = testkit::need!(Server::start());
    let backends = replicas(&server).await;
    for quorum in [1, 2] {
        let (target, [here, there]) = (key("t"), backends.each_ref().map(|backend| breaker(backend, quorum)));
        here.force(&target, Force::Open, HOUR).await.unwrap();
        assert!(!is_admitted(&here, &target).await && !is_admitted(&there, &target).await);
        there.automatic(&target).await.unwrap();
        assert!(is_admitted(&there, &target).await);
        assert!(is_admitted(&here, &target).await, "with a quorum of {quorum}");
    }
    let [here, there] = backends.each_ref().map(|backend| breaker(backend, 1));
    here.force(&key("t"), Force::Open, HOUR).await.unwrap();
    there.automatic(&key("t")).await.unwrap();
    assert!(is_admitted(&here, &key("t")).await);
    server.kill();
    assert!(is_admitted(&here, &key("t")).await, "also without Redis");
    shutdown(&backends).await;
}

#[tokio::test]
async fn an_order_to_close_holds_at_every_replica_whatever_its_own_circuit_saw() {
    let server = testkit::need!(Server::start());
    let backends = replicas(&server).await;
    let (target, breakers) = (key("t"), backends.each_ref().map(|backend| breaker(backend, 2)));
    breakers[0].force(&target, Force::Closed, HOUR).await.unwrap();
    for breaker in &breakers {
        for call in 0..10 {
            let Admission::Pass(pass) = breaker.admit(&target).await else { panic!("call {call} was refused") };
            pass.record(Outcome::Failure).await;
        }
    }
    shutdown(&backends).await;
}

/// Whoever took the order or was refused by it goes on without Redis as it was told, and shows so.
#[tokio::test]
async fn without_redis_an_order_to_open_holds_where_it_was_heard() {
    let server = testkit::need!(Server::start());
    let backends = replicas(&server).await;
    let (target, gates) = (key("t"), backends.each_ref().map(Gate::new));
    let breakers = gates.each_ref().map(|gate| gate.breaker().clone());
    let guarded = Gates::default().circuit(Policy::default());
    let enter = async |gate: &Gate, policy: &Gates| gate.enter(&target, policy, NonZeroU64::MIN).await;
    let is_refused = |entry: &Entry| matches!(entry, Entry::Refused(Refused { by: By::Circuit, .. }));
    breakers[0].force(&target, Force::Open, HOUR).await.unwrap();
    assert!(is_refused(&enter(&gates[1], &Gates::default()).await));
    server.kill();
    for (gate, breaker) in gates.iter().zip(&breakers) {
        for policy in [&guarded, &Gates::default()] {
            let entry = enter(gate, policy).await;
            assert!(is_refused(&entry), "{entry:?}");
        }
        let view = breaker.view(&target).await;
        assert_eq!((view.state, view.degraded), (State::ForcedOpen, true));
        assert!(view.retry_after > Duration::from_mins(59));
        // It is told alone, and obeys alone.
        breaker.automatic(&target).await.unwrap_err();
        for policy in [&guarded, &Gates::default()] {
            let entry = enter(gate, policy).await;
            assert!(matches!(entry, Entry::Pass(_)), "{entry:?}");
        }
        breaker.force(&target, Force::Open, HOUR).await.unwrap_err();
        assert!(is_refused(&enter(gate, &guarded).await) && is_refused(&enter(gate, &Gates::default()).await));
    }
    shutdown(&backends).await;
}

/// Of a target that no circuit guards nothing else tells a replica that its last refusal is history.
#[tokio::test]
async fn without_redis_an_order_that_was_seen_lifted_does_not_come_back() {
    let server = testkit::need!(Server::start());
    let backends = replicas(&server).await;
    let (target, gates) = (key("t"), backends.each_ref().map(Gate::new));
    let enter = async || gates[0].enter(&target, &Gates::default(), NonZeroU64::MIN).await;
    gates[1].breaker().force(&target, Force::Open, HOUR).await.unwrap();
    assert!(matches!(enter().await, Entry::Refused(_)));
    gates[1].breaker().automatic(&target).await.unwrap();
    assert!(matches!(enter().await, Entry::Pass(_)));
    server.kill();
    let entry = enter().await;
    assert!(matches!(entry, Entry::Pass(_)), "{entry:?}");
    shutdown(&backends).await;
}
