//! The gate: all three parts agree or nothing is charged, in memory and in Redis.

use std::num::NonZeroU64;
use std::time::Duration;
use testkit::eventually;

use gate::gate::{By, Entry, Exit, Gate, Outcome, Pass, Policy, Refused, Token};
use gate::{Key, breaker, limiter, semaphore};

use crate::backends::{each_backend, key};

const LEASE: Duration = Duration::from_secs(30);

fn rate(limit: u64) -> limiter::Policy {
    limiter::Policy::new(limiter::Algorithm::SlidingLog, limit, Duration::from_secs(1)).expect("a plain limit is valid")
}

fn permits(limit: u32) -> semaphore::Policy {
    semaphore::Policy::new(limit, LEASE).expect("a plain limit is valid")
}

fn circuit(failures: u32) -> breaker::Policy {
    let settings = breaker::Settings { failures, refresh: Duration::ZERO, ..breaker::Settings::default() };
    breaker::Policy::new(&settings).expect("the settings are valid")
}

async fn enter(gate: &Gate, target: &Key, policy: &Policy) -> Result<Pass, Refused> {
    match gate.enter(target, policy, NonZeroU64::MIN).await {
        Entry::Pass(pass) => Ok(pass),
        Entry::Refused(refused) => Err(refused),
    }
}

async fn refused_by(gate: &Gate, target: &Key, policy: &Policy) -> By {
    enter(gate, target, policy).await.expect_err("this entry must be refused").by
}

#[tokio::test]
async fn each_part_can_refuse_and_is_named() {
    each_backend(async |backend, _| {
        let gate = Gate::new(&backend);
        let by_rate = Policy::default().rate(rate(1));
        enter(&gate, &key("rate"), &by_rate).await.unwrap().exit(Outcome::Success).await;
        assert_eq!(refused_by(&gate, &key("rate"), &by_rate).await, By::Rate);

        let by_permits = Policy::default().concurrency(permits(1));
        let held = enter(&gate, &key("permits"), &by_permits).await.unwrap();
        assert_eq!(refused_by(&gate, &key("permits"), &by_permits).await, By::Concurrency);
        held.exit(Outcome::Success).await;
        enter(&gate, &key("permits"), &by_permits).await.unwrap().exit(Outcome::Success).await;

        let by_circuit = Policy::default().circuit(circuit(2));
        for _ in 0..2 {
            enter(&gate, &key("circuit"), &by_circuit).await.unwrap().exit(Outcome::Failure).await;
        }
        let refused = enter(&gate, &key("circuit"), &by_circuit).await.expect_err("the circuit is open");
        assert_eq!((refused.by, refused.retry_after), (By::Circuit, Some(Duration::from_secs(30))));
    })
    .await;
}

#[tokio::test]
async fn nothing_is_charged_unless_all_agree() {
    each_backend(async |backend, _| {
        let gate = Gate::new(&backend);
        let policy = Policy::default().rate(rate(5)).circuit(circuit(2)).concurrency(permits(2));
        let target = key("together");
        let first = enter(&gate, &target, &policy).await.unwrap();
        let second = enter(&gate, &target, &policy).await.unwrap();
        for _ in 0..4 {
            assert_eq!(refused_by(&gate, &target, &policy).await, By::Concurrency);
        }
        let left = gate.limiter().peek(&target, &rate(5), NonZeroU64::MIN).await.remaining;
        assert_eq!(left, 3, "a refusal by concurrency must not spend rate");
        first.exit(Outcome::Failure).await;
        second.exit(Outcome::Failure).await;
        assert_eq!(refused_by(&gate, &target, &policy).await, By::Circuit);
        assert_eq!(gate.semaphore().held(&target).await, 0, "a refusal by the circuit must not hold a permit");
        let left = gate.limiter().peek(&target, &rate(5), NonZeroU64::MIN).await.remaining;
        assert_eq!(left, 3, "a refusal by the circuit must not spend rate");
    })
    .await;
}

#[tokio::test]
async fn a_refusal_by_rate_holds_no_permit_and_no_probe() {
    each_backend(async |backend, clock| {
        let gate = Gate::new(&backend);
        let spent = Policy::default().rate(rate(1)).circuit(circuit(1)).concurrency(permits(9));
        let target = key("probe");
        enter(&gate, &target, &spent).await.unwrap().exit(Outcome::Failure).await;
        clock.advance(Duration::from_secs(30));
        // The circuit would let a probe pass; the rate does not, so the probe's place must stay free.
        let slot = gate.limiter().check(&target, &rate(1), NonZeroU64::MIN).await;
        assert!(slot.is_allowed());
        assert_eq!(refused_by(&gate, &target, &spent).await, By::Rate);
        assert_eq!(gate.semaphore().held(&target).await, 0);
        let unlimited = Policy::default().circuit(circuit(1)).concurrency(permits(9));
        let mut probes = Vec::new();
        for _ in 0..3 {
            probes.push(enter(&gate, &target, &unlimited).await.expect("all three probes are free"));
        }
        assert!(probes.iter().all(Pass::is_probe));
    })
    .await;
}

#[tokio::test]
async fn a_slot_that_is_near_is_taken_ahead_and_one_that_is_far_is_refused() {
    each_backend(async |backend, clock| {
        let gate = Gate::new(&backend);
        let millis = Duration::from_millis;
        let policy = Policy::default().rate(rate(2)).ahead(millis(100)).concurrency(permits(9));
        let target = key("ahead");
        for _ in 0..2 {
            assert_eq!(enter(&gate, &target, &policy).await.unwrap().delay(), Duration::ZERO);
        }
        for wait in [millis(900), millis(400)] {
            let refused = enter(&gate, &target, &policy).await.expect_err("the slot is too far");
            assert_eq!((refused.by, refused.retry_after), (By::Rate, Some(wait)), "until it is near");
            clock.advance(millis(500));
        }
        let [third, fourth] = [enter(&gate, &target, &policy).await, enter(&gate, &target, &policy).await];
        assert_eq!([third.unwrap().delay(), fourth.unwrap().delay()], [Duration::ZERO; 2]);
        clock.advance(millis(930));
        let [ahead, also] = [enter(&gate, &target, &policy).await, enter(&gate, &target, &policy).await];
        assert_eq!([ahead.unwrap().delay(), also.unwrap().delay()], [millis(70); 2], "and both wait for their slot");
        assert_eq!(refused_by(&gate, &target, &policy).await, By::Rate);
    })
    .await;
}

#[tokio::test]
async fn a_dropped_pass_frees_its_permit_and_counts_as_ignored() {
    each_backend(async |backend, _| {
        let gate = Gate::new(&backend);
        let policy = Policy::default().circuit(circuit(1)).concurrency(permits(1));
        let target = key("dropped");
        drop(enter(&gate, &target, &policy).await.unwrap());
        eventually(Duration::from_secs(5), "the permit to be free", async || gate.semaphore().held(&target).await == 0)
            .await;
        enter(&gate, &target, &policy).await.expect("the circuit counted nothing").exit(Outcome::Success).await;
    })
    .await;
}

#[tokio::test]
async fn a_cost_above_the_limit_is_refused_without_a_retry_after() {
    each_backend(async |backend, _| {
        let gate = Gate::new(&backend);
        let policy = Policy::default().rate(rate(3)).concurrency(permits(1));
        let entry = gate.enter(&key("never"), &policy, NonZeroU64::new(4).unwrap()).await;
        let Entry::Refused(refused) = entry else { panic!("4 of 3 cannot pass") };
        assert_eq!((refused.by, refused.retry_after), (By::Rate, None));
        assert_eq!(gate.semaphore().held(&key("never")).await, 0);
    })
    .await;
}

#[tokio::test]
async fn concurrent_entries_admit_exactly_what_the_tightest_part_allows() {
    each_backend(async |backend, _| {
        let gate = Gate::new(&backend);
        let policy = Policy::default().rate(rate(50)).circuit(circuit(5)).concurrency(permits(20));
        let target = key("crowd");
        let entries = futures_util::future::join_all((0..200).map(|_| enter(&gate, &target, &policy))).await;
        let passes: Vec<Pass> = entries.into_iter().filter_map(Result::ok).collect();
        assert_eq!(passes.len(), 20);
        assert_eq!(gate.semaphore().held(&target).await, 20);
        let left = gate.limiter().peek(&target, &rate(50), NonZeroU64::MIN).await.remaining;
        assert_eq!(left, 30, "only those who passed paid");
        futures_util::future::join_all(passes.into_iter().map(|pass| pass.exit(Outcome::Success))).await;
        assert_eq!(gate.semaphore().held(&target).await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_detached_pass_is_renewed_and_ended_by_its_token_alone() {
    each_backend(async |backend, clock| {
        let gate = Gate::new(&backend);
        let policy = Policy::default().circuit(circuit(1)).concurrency(permits(1));
        let target = key("detached");
        let text = enter(&gate, &target, &policy).await.unwrap().detach().to_string();
        let token = Token::parse(&text).expect("a token reads back");
        clock.advance(LEASE / 2);
        assert!(gate.renew(&target, &policy, &token).await);
        clock.advance(LEASE / 2);
        assert_eq!(refused_by(&gate, &target, &policy).await, By::Concurrency, "it was renewed in time");
        let exit = async || gate.exit(&target, &policy, &token, Outcome::Failure, Duration::ZERO).await;
        assert_eq!(exit().await, Exit::Counted);
        assert_eq!(gate.semaphore().held(&target).await, 0);
        assert_eq!(refused_by(&gate, &target, &policy).await, By::Circuit, "its failure was counted");
        assert_eq!(exit().await, Exit::TooLate);
        assert!(!gate.renew(&target, &policy, &token).await);
    })
    .await;
}

/// A circuit whose calls take longer than a lease must find its way back all the same.
#[tokio::test]
async fn a_detached_probe_that_is_renewed_keeps_its_place_and_closes_the_circuit() {
    each_backend(async |backend, clock| {
        let gate = Gate::new(&backend);
        let settings = breaker::Settings {
            failures: 1,
            probes: 1,
            probe_lease: LEASE,
            longest_call: LEASE,
            refresh: Duration::ZERO,
            ..breaker::Settings::default()
        };
        let policy = Policy::default().circuit(breaker::Policy::new(&settings).unwrap()).concurrency(permits(5));
        let target = key("long-probe");
        enter(&gate, &target, &policy).await.unwrap().exit(Outcome::Failure).await;
        clock.advance(settings.open);
        let probe = enter(&gate, &target, &policy).await.unwrap();
        assert!(probe.is_probe());
        let token = probe.detach();
        for _ in 0..5 {
            clock.advance(LEASE / 2);
            assert!(gate.renew(&target, &policy, &token).await);
            assert_eq!(refused_by(&gate, &target, &policy).await, By::Circuit, "one probe is out");
        }
        let exit = gate.exit(&target, &policy, &token, Outcome::Success, LEASE * 2).await;
        assert_eq!((exit, gate.breaker().view(&target).await.state), (Exit::Counted, breaker::State::Closed));
    })
    .await;
}

#[tokio::test]
async fn a_token_shown_again_and_again_reports_one_failure() {
    each_backend(async |backend, _| {
        let gate = Gate::new(&backend);
        let policy = Policy::default().circuit(circuit(2)).concurrency(permits(1));
        let target = key("shown-twice");
        let token = enter(&gate, &target, &policy).await.unwrap().detach();
        for _ in 0..5 {
            gate.exit(&target, &policy, &token, Outcome::Failure, Duration::ZERO).await;
        }
        enter(&gate, &target, &policy).await.expect("one failure is not two").exit(Outcome::Success).await;
    })
    .await;
}

/// Successes wait in the process for the next report: one that does not count must neither add to them nor take them away.
#[tokio::test]
async fn a_token_shown_again_changes_no_count() {
    each_backend(async |backend, _| {
        let gate = Gate::new(&backend);
        let settings = breaker::Settings { failures: 100, ..breaker::Settings::default() };
        let circuit = breaker::Policy::new(&settings).unwrap();
        let (target, policy) = (key("counted-once"), Policy::default().circuit(circuit).concurrency(permits(9)));
        let detached = async || enter(&gate, &target, &policy).await.unwrap().detach();
        let exit = async |token: &Token, outcome| gate.exit(&target, &policy, token, outcome, Duration::ZERO).await;
        let [good, bad] = [detached().await, detached().await];
        for _ in 0..2 {
            for _ in 0..5 {
                assert_eq!(exit(&detached().await, Outcome::Success).await, Exit::Counted);
            }
            exit(&good, Outcome::Success).await;
            exit(&bad, Outcome::Failure).await;
        }
        assert_eq!(exit(&detached().await, Outcome::Failure).await, Exit::Counted);
        let counts = gate.breaker().view(&target).await.counts;
        assert_eq!((counts.calls, counts.failures), (5 + 5 + 1 + 1 + 1, 2));
    })
    .await;
}

#[tokio::test]
async fn a_detached_pass_that_nobody_ends_is_over_with_its_lease() {
    each_backend(async |backend, clock| {
        let gate = Gate::new(&backend);
        let policy = Policy::default().concurrency(permits(1));
        let target = key("forgotten");
        let token = enter(&gate, &target, &policy).await.unwrap().detach();
        assert_eq!(refused_by(&gate, &target, &policy).await, By::Concurrency);
        clock.advance(LEASE);
        let next = enter(&gate, &target, &policy).await.expect("the lease is over");
        let late = gate.exit(&target, &policy, &token, Outcome::Success, Duration::ZERO).await;
        assert_eq!(late, Exit::TooLate);
        assert_eq!(gate.semaphore().held(&target).await, 1, "a late token frees nobody else's permit");
        next.exit(Outcome::Success).await;
    })
    .await;
}
