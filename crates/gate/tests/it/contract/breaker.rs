//! The breaker on every backend.

use std::time::Duration;
use testkit::eventually;

use gate::breaker::{Admission, Breaker, Force, Outcome, Pass, Policy, Reason, Settings, State};
use gate::{Backend, Key};

use crate::backends::{each_backend, key};

const SHORT: Duration = Duration::from_secs(10);

fn breaker(backend: &Backend) -> Breaker {
    let settings = Settings { failures: 3, failure_percent: None, refresh: Duration::ZERO, ..Settings::default() };
    Breaker::new(backend, Policy::new(&settings).expect("the settings are valid"))
}

async fn pass(breaker: &Breaker, target: &Key) -> Pass {
    match breaker.admit(target).await {
        Admission::Pass(pass) => pass,
        reject @ Admission::Reject { .. } => panic!("expected a pass, got {reject:?}"),
    }
}

async fn refused(breaker: &Breaker, target: &Key) -> Duration {
    match breaker.admit(target).await {
        Admission::Reject { retry_after, .. } => retry_after,
        Admission::Pass(pass) => panic!("expected a refusal, got {pass:?}"),
    }
}

async fn fail(breaker: &Breaker, target: &Key, times: u32) {
    for _ in 0..times {
        pass(breaker, target).await.record(Outcome::Failure).await;
    }
}

#[tokio::test]
async fn opens_after_the_configured_failures_and_only_for_that_target() {
    each_backend(async |backend, _| {
        let breaker = breaker(&backend);
        fail(&breaker, &key("a"), 3).await;
        assert_eq!(refused(&breaker, &key("a")).await, Duration::from_secs(30));
        pass(&breaker, &key("b")).await.record(Outcome::Success).await;
        let view = breaker.view(&key("a")).await;
        assert_eq!((view.state, view.reason), (State::Open, Some(Reason::ConsecutiveFailures)));
        assert_eq!(view.retry_after, Duration::from_secs(30));
    })
    .await;
}

/// Pitfall 18: a probe whose pass is dropped, also in the middle of a call, gives its place back.
#[tokio::test]
async fn three_probes_pass_a_dropped_one_is_replaced_and_three_successes_close_it() {
    each_backend(async |backend, clock| {
        let (breaker, target) = (breaker(&backend), key("a"));
        fail(&breaker, &target, 3).await;
        clock.advance(Duration::from_secs(30));
        let (first, second) = (pass(&breaker, &target).await, pass(&breaker, &target).await);
        let third = pass(&breaker, &target).await;
        assert!(first.is_probe() && second.is_probe() && third.is_probe());
        assert_eq!(refused(&breaker, &target).await, Duration::from_secs(1));
        drop(third);
        let mut fourth = None;
        eventually(SHORT, "the dropped probe's place", async || {
            if let Admission::Pass(pass) = breaker.admit(&target).await {
                fourth = Some(pass);
            }
            fourth.is_some()
        })
        .await;
        for probe in [Some(first), Some(second), fourth].into_iter().flatten() {
            probe.record(Outcome::Success).await;
        }
        assert_eq!(breaker.view(&target).await.state, State::Closed);
    })
    .await;
}

/// Bar 32: never stuck, however long nobody asked.
#[tokio::test]
async fn the_first_call_after_any_pause_is_let_through() {
    each_backend(async |backend, clock| {
        let breaker = breaker(&backend);
        for (name, pause) in [("0s", 0), ("1h", 3_600), ("24h", 86_400)] {
            fail(&breaker, &key(name), 3).await;
            clock.advance(Duration::from_secs(30 + pause));
            let _killed =
                (pass(&breaker, &key(name)).await, pass(&breaker, &key(name)).await, pass(&breaker, &key(name)).await);
            std::mem::forget(_killed);
            clock.advance(Duration::from_mins(1));
            pass(&breaker, &key(name)).await.record(Outcome::Success).await;
        }
    })
    .await;
}

/// Pitfall 19: late reports.
#[tokio::test]
async fn a_late_report_of_an_older_generation_changes_nothing() {
    each_backend(async |backend, clock| {
        let (breaker, target) = (breaker(&backend), key("a"));
        let late = (pass(&breaker, &target).await, pass(&breaker, &target).await);
        fail(&breaker, &target, 3).await;
        clock.advance(Duration::from_secs(30));
        let probe = pass(&breaker, &target).await;
        late.0.record(Outcome::Failure).await;
        late.1.record(Outcome::Success).await;
        let view = breaker.view(&target).await;
        assert_eq!((view.state, view.successes, view.probes), (State::HalfOpen, 0, 1));
        probe.record(Outcome::Failure).await;
        assert_eq!(refused(&breaker, &target).await, Duration::from_mins(1), "the second open time is twice the first");
    })
    .await;
}

#[tokio::test]
async fn an_operator_opens_closes_and_lets_go() {
    each_backend(async |backend, clock| {
        let (breaker, target) = (breaker(&backend), key("a"));
        breaker.force(&target, Force::Open, Duration::from_hours(1)).await.unwrap();
        assert_eq!(refused(&breaker, &target).await, Duration::from_hours(1));
        assert_eq!(breaker.view(&target).await.state, State::ForcedOpen);
        breaker.force(&target, Force::Closed, Duration::from_hours(1)).await.unwrap();
        fail(&breaker, &target, 5).await;
        breaker.automatic(&target).await.unwrap();
        fail(&breaker, &target, 3).await;
        refused(&breaker, &target).await;
        breaker.force(&target, Force::Closed, Duration::from_hours(1)).await.unwrap();
        clock.advance(Duration::from_hours(1));
        fail(&breaker, &target, 3).await;
        assert_eq!(breaker.view(&target).await.state, State::Open, "an order ends by itself");
    })
    .await;
}

#[tokio::test]
async fn an_order_for_longer_than_a_month_is_refused() {
    each_backend(async |backend, _| {
        let (breaker, target) = (breaker(&backend), key("a"));
        for lasting in [Duration::MAX, Duration::from_hours(24 * 30) + Duration::from_micros(1)] {
            let error = breaker.force(&target, Force::Open, lasting).await.unwrap_err();
            assert_eq!(error.to_string(), "lasting must be at most 30 days");
        }
        pass(&breaker, &target).await.record(Outcome::Success).await;
        breaker.force(&target, Force::Open, Duration::from_hours(24 * 30)).await.unwrap();
        refused(&breaker, &target).await;
    })
    .await;
}

/// Successes are counted in the process and sent with the next failure: of an order's calls none may be.
#[tokio::test]
async fn what_passed_by_order_counts_for_nothing_also_when_the_order_is_over() {
    each_backend(async |backend, clock| {
        let (breaker, target) = (breaker(&backend), key("a"));
        breaker.force(&target, Force::Closed, Duration::from_secs(1)).await.unwrap();
        let late = (pass(&breaker, &target).await, pass(&breaker, &target).await);
        for _ in 0..2 {
            pass(&breaker, &target).await.record(Outcome::Success).await;
        }
        clock.advance(Duration::from_secs(1));
        late.0.record(Outcome::Success).await;
        late.1.record(Outcome::Failure).await;
        fail(&breaker, &target, 2).await;
        let view = breaker.view(&target).await;
        assert_eq!((view.state, view.counts.calls, view.counts.failures), (State::Closed, 2, 2));
    })
    .await;
}

#[tokio::test]
async fn a_late_report_takes_no_successes_of_now_along_and_is_none_itself() {
    each_backend(async |backend, _| {
        let (breaker, target) = (breaker(&backend), key("a"));
        let late = [pass(&breaker, &target).await, pass(&breaker, &target).await, pass(&breaker, &target).await];
        breaker.automatic(&target).await.unwrap();
        for _ in 0..10 {
            pass(&breaker, &target).await.record(Outcome::Success).await;
        }
        for (late, outcome) in late.into_iter().zip([Outcome::Success, Outcome::Failure, Outcome::Success]) {
            late.record(outcome).await;
        }
        fail(&breaker, &target, 1).await;
        let counts = breaker.view(&target).await.counts;
        assert_eq!((counts.calls, counts.failures), (11, 1));
    })
    .await;
}

#[tokio::test]
async fn slow_calls_open_it_by_their_latency() {
    each_backend(async |backend, _| {
        let settings = Settings {
            slow_percent: Some(50),
            slow_call: Duration::from_secs(1),
            min_calls: 4,
            gather: Duration::ZERO,
            refresh: Duration::ZERO,
            ..Settings::default()
        };
        let breaker = Breaker::new(&backend, Policy::new(&settings).unwrap());
        for latency_ms in [10, 10, 1_000, 1_000] {
            let pass = pass(&breaker, &key("a")).await;
            pass.record_with(Outcome::Success, Duration::from_millis(latency_ms)).await;
        }
        assert_eq!(breaker.view(&key("a")).await.reason, Some(Reason::SlowRate));
    })
    .await;
}

#[tokio::test]
async fn ignored_calls_say_nothing_about_the_target() {
    each_backend(async |backend, _| {
        let (breaker, target) = (breaker(&backend), key("a"));
        fail(&breaker, &target, 2).await;
        pass(&breaker, &target).await.record(Outcome::Ignored).await;
        drop(pass(&breaker, &target).await);
        assert_eq!(breaker.view(&target).await.failures, 2, "neither a failure nor the end of a row");
        fail(&breaker, &target, 1).await;
        refused(&breaker, &target).await;
    })
    .await;
}

#[tokio::test]
async fn circuits_that_changed_are_listed_page_by_page() {
    each_backend(async |backend, clock| {
        let breaker = breaker(&backend);
        let mut expected: Vec<String> = (0..25).map(|index| format!("target {index:02}")).collect();
        for (index, name) in expected.iter().enumerate() {
            breaker.force(&key(name), Force::Open, Duration::from_hours(1)).await.unwrap();
            // Several changes share a microsecond.
            clock.advance(Duration::from_micros(u64::from(index % 4 == 0)));
        }
        pass(&breaker, &key("healthy")).await.record(Outcome::Success).await;
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = breaker.list(after.as_deref(), 4).await.unwrap();
            assert!(page.circuits.len() <= 4);
            for (target, view) in page.circuits {
                assert_eq!(view.state, State::ForcedOpen);
                seen.push(target.as_str().to_owned());
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        seen.sort();
        expected.sort();
        assert_eq!(seen, expected);
    })
    .await;
}
