//! The rules of the breaker, case by case. The pitfalls are those of the resilience libraries before us.

use std::time::Duration;

use proptest::prelude::*;

use super::circuit::{Check, Circuit, Force, Outcome, Reason, Recorded, Report, State};
use super::window::Past;
use super::{Policy, Settings, Ticket};
use crate::Holder;

const MS: u64 = 1_000;
const START_US: u64 = 1_000_000_000_000_000;

fn settings() -> Settings {
    let millis = Duration::from_millis;
    Settings {
        failures: 3,
        failure_percent: None,
        slow_percent: None,
        slow_call: millis(10),
        min_calls: 10,
        window: millis(1_000),
        gather: millis(0),
        quorum: 1,
        open: millis(100),
        open_cap: millis(350),
        probes: 3,
        probe_lease: millis(50),
        longest_call: millis(50),
        ttl: millis(10_000),
        refresh: millis(0),
    }
}

/// One circuit, one policy and a clock that the test moves.
struct Bench {
    circuit: Circuit,
    policy: Policy,
    now_us: u64,
}

impl Bench {
    fn new(settings: Settings) -> Bench {
        Bench { circuit: Circuit::default(), policy: Policy::new(&settings).unwrap(), now_us: START_US }
    }

    fn admit(&mut self) -> Result<Ticket, u64> {
        match self.circuit.check(&self.policy, self.now_us) {
            Check::Pass { generation, .. } => Ok(Ticket { generation, probe: None }),
            Check::Probe => {
                let holder = Holder::random();
                let generation = self.circuit.take_probe(&self.policy, holder, self.now_us);
                Ok(Ticket { generation, probe: Some(holder) })
            }
            Check::Reject { retry_after_us, .. } => Err(retry_after_us),
        }
    }

    fn report(&mut self, ticket: Ticket, outcome: Outcome) -> Recorded {
        self.report_from(0, ticket, outcome, false)
    }

    fn report_from(&mut self, process: u128, ticket: Ticket, outcome: Outcome, slow: bool) -> Recorded {
        let Ticket { generation, probe } = ticket;
        let reporter = Holder::fixed(process);
        let report = Report { generation, probe, outcome, slow, reporter, past: Vec::new() };
        self.circuit.record(&self.policy, &report, self.now_us)
    }

    fn call(&mut self, outcome: Outcome) -> State {
        let ticket = self.admit().expect("the circuit lets calls pass");
        self.report(ticket, outcome).state
    }

    fn fail(&mut self, times: u32) {
        for _ in 0..times {
            self.call(Outcome::Failure);
        }
    }

    fn state(&self) -> State {
        self.circuit.snapshot(&self.policy, self.now_us).state
    }

    fn reason(&self) -> Option<Reason> {
        self.circuit.snapshot(&self.policy, self.now_us).reason
    }

    fn wait(&mut self, millis: u64) {
        self.now_us += millis * MS;
    }
}

#[test]
fn the_default_settings_are_valid() {
    let policy = Policy::default();
    assert_eq!((policy.failures, policy.open_us, policy.probes), (5, 30_000_000, 3));
}

#[test]
fn contradictory_settings_are_refused_by_the_name_of_the_field() {
    let refused = |change: &dyn Fn(&mut Settings)| {
        let mut settings = settings();
        change(&mut settings);
        Policy::new(&settings).unwrap_err().to_string()
    };
    assert_eq!(refused(&|s| s.failures = 0), "failures must be at least 1");
    assert_eq!(refused(&|s| s.failure_percent = Some(101)), "failure_percent must be between 1 and 100");
    assert_eq!(refused(&|s| s.window = Duration::ZERO), "window must be at least 1ms");
    assert_eq!(refused(&|s| s.open_cap = Duration::from_millis(99)), "open_cap must not be shorter than `open`");
    assert!(refused(&|s| s.ttl = s.open_cap).starts_with("ttl must exceed `open_cap`"));
    assert!(refused(&|s| s.probe_lease = Duration::from_millis(49)).starts_with("probe_lease must not be shorter"));
    assert!(refused(&|s| s.open_cap = Duration::MAX).starts_with("open_cap must be at most"));
}

#[test]
fn failures_in_a_row_open_it_on_the_third_and_a_success_between_starts_over() {
    let mut bench = Bench::new(settings());
    bench.fail(2);
    bench.call(Outcome::Success);
    bench.fail(2);
    assert_eq!(bench.state(), State::Closed);
    bench.fail(1);
    assert_eq!((bench.state(), bench.reason()), (State::Open, Some(Reason::ConsecutiveFailures)));
    assert_eq!(bench.admit(), Err(100 * MS));
}

/// Pitfall 19: some trip only above the rate.
#[test]
fn a_failure_rate_opens_it_when_it_is_reached_not_only_when_it_is_passed() {
    let mut bench = Bench::new(Settings { failures: 100, failure_percent: Some(50), ..settings() });
    for _ in 0..5 {
        bench.call(Outcome::Success);
    }
    bench.fail(4);
    assert_eq!(bench.state(), State::Closed, "9 calls are fewer than the minimum");
    bench.fail(1);
    assert_eq!((bench.state(), bench.reason()), (State::Open, Some(Reason::FailureRate)));
}

#[test]
fn slow_calls_open_it_although_none_failed() {
    let mut bench = Bench::new(Settings { slow_percent: Some(80), ..settings() });
    for index in 0..10 {
        let ticket = bench.admit().unwrap();
        bench.report_from(0, ticket, Outcome::Success, index >= 2);
    }
    assert_eq!((bench.state(), bench.reason()), (State::Open, Some(Reason::SlowRate)));
}

/// Pitfall 19: count windows go stale at low traffic.
#[test]
fn failures_older_than_the_window_do_not_count() {
    let mut bench = Bench::new(Settings { failures: 100, failure_percent: Some(50), ..settings() });
    bench.fail(9);
    bench.wait(1_100);
    for _ in 0..9 {
        bench.call(Outcome::Success);
    }
    bench.fail(1);
    assert_eq!(bench.state(), State::Closed, "1 of 10 in the window failed");
}

#[test]
fn a_rate_waits_until_the_fleet_has_had_the_time_to_report() {
    let gather = Duration::from_millis(200);
    let mut bench = Bench::new(Settings { failures: 100, failure_percent: Some(50), gather, ..settings() });
    bench.fail(20);
    assert_eq!(bench.state(), State::Closed);
    bench.wait(200);
    bench.fail(1);
    assert_eq!((bench.state(), bench.reason()), (State::Open, Some(Reason::FailureRate)));
}

/// Pitfall 19: late results of an old generation counted.
#[test]
fn a_stale_report_neither_closes_nor_opens_the_circuit() {
    let mut bench = Bench::new(settings());
    let early: Vec<Ticket> = (0..6).map(|_| bench.admit().unwrap()).collect();
    bench.fail(3);
    bench.wait(100);
    let probe = bench.admit().unwrap();
    bench.report(early[0], Outcome::Success);
    bench.report(early[1], Outcome::Failure);
    assert_eq!(bench.state(), State::HalfOpen);
    bench.report(probe, Outcome::Success);
    for _ in 0..2 {
        bench.call(Outcome::Success);
    }
    for ticket in &early[2..] {
        bench.report(*ticket, Outcome::Failure);
    }
    assert_eq!(bench.state(), State::Closed, "failures from before it opened are old news");
}

/// Pitfall 18: unlimited probes herd, and more permits than set.
#[test]
fn half_open_lets_exactly_three_probes_through_and_three_successes_close_it() {
    let mut bench = Bench::new(settings());
    bench.fail(3);
    bench.wait(100);
    let probes: Vec<Ticket> = (0..3).map(|_| bench.admit().unwrap()).collect();
    assert_eq!(bench.admit(), Err(50 * MS), "refused until the first probe's lease ends");
    bench.report(probes[0], Outcome::Success);
    bench.report(probes[1], Outcome::Success);
    assert_eq!(bench.admit(), Err(50 * MS), "a success gives no place for a fourth probe");
    assert_eq!(bench.report(probes[2], Outcome::Success).state, State::Closed);
    assert!(bench.admit().unwrap().probe.is_none());
}

/// Pitfall 18: permits lost by cancelled or hung calls wedge it for ever.
#[test]
fn probes_that_are_cancelled_or_never_come_back_do_not_wedge_it() {
    let mut bench = Bench::new(settings());
    bench.fail(3);
    bench.wait(100);
    let cancelled = bench.admit().unwrap();
    let _hung = (bench.admit().unwrap(), bench.admit().unwrap());
    assert!(bench.admit().is_err());
    bench.report(cancelled, Outcome::Ignored);
    assert!(bench.admit().is_ok(), "a cancelled probe gives its place back at once");
    assert!(bench.admit().is_err());
    bench.wait(50);
    let late: Vec<Ticket> = (0..3).map(|_| bench.admit().expect("leases ended, their places are free")).collect();
    for ticket in late {
        bench.report(ticket, Outcome::Success);
    }
    assert_eq!(bench.state(), State::Closed);
}

#[test]
fn a_probe_that_outlived_its_lease_proves_nothing_by_succeeding_but_reopens_it_by_failing() {
    let mut bench = Bench::new(settings());
    bench.fail(3);
    bench.wait(100);
    let late = bench.admit().unwrap();
    bench.wait(50);
    assert_eq!(bench.report(late, Outcome::Success).state, State::HalfOpen);
    assert_eq!(bench.circuit.snapshot(&bench.policy, bench.now_us).successes, 0);
    let late = bench.admit().unwrap();
    bench.wait(50);
    assert_eq!(bench.report(late, Outcome::Failure).state, State::Open);
}

#[test]
fn a_caller_with_a_shorter_lease_does_not_take_the_place_of_a_probe_with_a_longer_one() {
    let mut bench = Bench::new(Settings { probes: 1, probe_lease: Duration::from_secs(5), ..settings() });
    let short = Policy::new(&Settings { probes: 1, ..settings() }).unwrap();
    bench.fail(3);
    bench.wait(100);
    let probe = bench.admit().unwrap();
    let long = std::mem::replace(&mut bench.policy, short);
    assert!(bench.admit().is_err(), "one probe is out");
    assert_eq!(bench.circuit.snapshot(&bench.policy, bench.now_us).probes, 1);
    bench.wait(4_000);
    assert!(bench.admit().is_err(), "and it still is");
    bench.policy = long;
    assert_eq!(bench.report(probe, Outcome::Success).state, State::Closed);
}

#[test]
fn the_open_time_doubles_to_its_cap_and_starts_over_after_a_healthy_stretch() {
    let mut bench = Bench::new(settings());
    bench.fail(3);
    let mut open_ms = vec![bench.admit().unwrap_err() / MS];
    for _ in 0..3 {
        let left_us = bench.admit().unwrap_err();
        bench.now_us += left_us;
        bench.fail(1);
        open_ms.push(bench.admit().unwrap_err() / MS);
    }
    assert_eq!(open_ms, [100, 200, 350, 350]);
    bench.wait(350);
    for _ in 0..3 {
        bench.call(Outcome::Success);
    }
    bench.fail(3);
    assert_eq!(bench.admit(), Err(350 * MS), "it failed again at once");
    bench.wait(350);
    for _ in 0..3 {
        bench.call(Outcome::Success);
    }
    bench.wait(350);
    bench.fail(3);
    assert_eq!(bench.admit(), Err(100 * MS), "it was well for as long as it had been ill");
}

/// Pitfall 19: wall-clock windows break on clock steps; pitfall 2: a new primary's clock may be behind.
#[test]
fn a_clock_that_is_set_back_does_not_keep_it_open_or_half_open() {
    let mut bench = Bench::new(settings());
    bench.fail(3);
    bench.now_us -= 3_600 * 1_000 * MS;
    let _hung: Vec<Ticket> = (0..3).map(|_| bench.admit().expect("open since the future")).collect();
    assert!(bench.admit().is_err());
    bench.now_us -= 3_600 * 1_000 * MS;
    assert!(bench.admit().is_ok(), "leases from the future count as ended");
}

/// Pitfall 20: one bad node opens everyone's breaker.
#[test]
fn with_a_quorum_one_process_in_trouble_does_not_open_it_and_a_second_does() {
    let mut bench = Bench::new(Settings { quorum: 2, ..settings() });
    for _ in 0..50 {
        let ticket = bench.admit().unwrap();
        bench.report_from(1, ticket, Outcome::Failure, false);
    }
    assert_eq!(bench.state(), State::Closed);
    let ticket = bench.admit().unwrap();
    bench.report_from(2, ticket, Outcome::Failure, false);
    assert_eq!(bench.state(), State::Open);
}

#[test]
fn a_reporter_of_long_ago_does_not_count_for_the_quorum() {
    let mut bench = Bench::new(Settings { quorum: 2, ..settings() });
    let ticket = bench.admit().unwrap();
    bench.report_from(1, ticket, Outcome::Failure, false);
    bench.wait(1_000);
    for _ in 0..5 {
        let ticket = bench.admit().unwrap();
        bench.report_from(2, ticket, Outcome::Failure, false);
    }
    assert_eq!(bench.state(), State::Closed);
}

#[test]
fn an_order_overrides_everything_and_ends_by_itself() {
    let mut bench = Bench::new(settings());
    let before = bench.admit().unwrap();
    bench.circuit.force(Some((Force::Open, 500 * MS)), bench.now_us);
    assert_eq!(
        (bench.admit(), bench.state(), bench.reason()),
        (Err(500 * MS), State::ForcedOpen, Some(Reason::Forced))
    );
    bench.report(before, Outcome::Success);
    assert_eq!(bench.state(), State::ForcedOpen);
    bench.circuit.force(Some((Force::Closed, 500 * MS)), bench.now_us);
    bench.fail(10);
    assert_eq!(bench.state(), State::ForcedClosed);
    bench.wait(500);
    assert_eq!((bench.state(), bench.reason()), (State::Closed, None));
    bench.fail(3);
    assert_eq!(bench.state(), State::Open, "its calls decide again");
    bench.circuit.force(None, bench.now_us);
    assert_eq!(bench.state(), State::Closed);
}

/// However calls and their ends interleave, no more probes are out than set, and only successes of probes close it.
#[test]
fn never_more_probes_are_out_than_set() {
    let step =
        (0u64..40, 0usize..8, prop_oneof![Just(Outcome::Success), Just(Outcome::Failure), Just(Outcome::Ignored)]);
    let cases = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    proptest!(cases, |(steps in proptest::collection::vec(step, 1..200), probes in 1u32..5)| {
        let mut bench = Bench::new(Settings { probes, ..settings() });
        bench.fail(3);
        let (mut out, mut proven): (Vec<(Ticket, u64)>, u32) = (Vec::new(), 0);
        for (wait, pick, outcome) in steps {
            bench.wait(wait);
            let before = bench.state();
            if pick < 4 {
                if let Ok(ticket) = bench.admit() && ticket.probe.is_some() {
                    proven = if before == State::HalfOpen { proven } else { 0 };
                    out.push((ticket, bench.now_us + 50 * MS));
                }
            } else if !out.is_empty() {
                let (ticket, until_us) = out.swap_remove(pick % out.len());
                let is_current = ticket.generation == bench.circuit.snapshot(&bench.policy, bench.now_us).generation;
                proven += u32::from(is_current && outcome == Outcome::Success && bench.now_us < until_us);
                let recorded = bench.report(ticket, outcome);
                if recorded.changed && recorded.state == State::Closed {
                    prop_assert_eq!(proven, probes, "closed by as many successes as probes");
                    bench.fail(3);
                }
            }
            let generation = bench.circuit.snapshot(&bench.policy, bench.now_us).generation;
            let live = out.iter().filter(|(t, until_us)| t.generation == generation && bench.now_us < *until_us).count();
            prop_assert!(live <= probes as usize, "{} probes are out, {} are set", live, probes);
        }
    });
}

#[test]
fn past_successes_count_with_their_age_and_break_a_row_of_failures() {
    let mut bench = Bench::new(Settings { failures: 3, failure_percent: Some(50), ..settings() });
    bench.fail(2);
    let past = vec![Past { age: 0, calls: 5 }, Past { age: 9, calls: 7 }, Past { age: 10, calls: 100 }];
    let report =
        Report { generation: 0, probe: None, outcome: Outcome::Failure, slow: false, reporter: Holder::fixed(1), past };
    assert_eq!(bench.circuit.record(&bench.policy, &report, bench.now_us).failures, 1);
    let counts = bench.circuit.snapshot(&bench.policy, bench.now_us).counts;
    assert_eq!((counts.calls, counts.failures), (15, 3), "what is older than the window does not count");
}
