//! Three processes share a circuit through their ledgers: what is sent, and how right the rate is.

use std::time::Duration;

use super::circuit::{Check, Circuit, Outcome, Report};
use super::ledger::{Ended, Ledger};
use super::window::Counts;
use super::{Policy, Settings};
use crate::{Holder, Key};

const MS: u64 = 1_000;

struct Process {
    ledger: Ledger,
    reporter: Holder,
    sent: u64,
}

/// What `Breaker` does with a ledger, without I/O.
struct Fleet {
    processes: Vec<Process>,
    circuit: Circuit,
    policy: Policy,
    target: Key,
    now_us: u64,
}

impl Fleet {
    fn new(settings: &Settings) -> Fleet {
        let process = |id| Process { ledger: Ledger::new(10), reporter: Holder::fixed(id), sent: 0 };
        Fleet {
            processes: (0..3).map(process).collect(),
            circuit: Circuit::default(),
            policy: Policy::new(settings).unwrap(),
            target: Key::new("t").unwrap(),
            now_us: 1_000_000_000_000_000,
        }
    }

    fn call(&mut self, process: usize, outcome: Outcome) {
        let generation = self.admit(process);
        self.report(process, generation, outcome);
    }

    fn admit(&self, process: usize) -> u64 {
        let (ledger, policy, target, now_us) =
            (&self.processes[process].ledger, &self.policy, &self.target, self.now_us);
        let check = ledger.recall(target, policy, now_us).unwrap_or_else(|| {
            let check = self.circuit.check(policy, now_us);
            ledger.heard(target, policy, check, now_us);
            check
        });
        let Check::Pass { generation, .. } = check else { panic!("nothing opens here: {check:?}") };
        generation
    }

    fn report(&mut self, process: usize, generation: u64, outcome: Outcome) {
        let (process, policy, target, now_us) = (&mut self.processes[process], &self.policy, &self.target, self.now_us);
        let ended = Ended { generation, outcome, slow: false };
        if let Some(past) = process.ledger.note(target, policy, ended, now_us) {
            process.sent += 1;
            let report = Report { generation, probe: None, outcome, slow: false, reporter: process.reporter, past };
            let recorded = self.circuit.record(policy, &report, now_us);
            process.ledger.heard_recorded(target, policy, recorded, now_us);
        }
    }

    fn sent(&self) -> u64 {
        self.processes.iter().map(|process| process.sent).sum()
    }

    fn counts(&self) -> Counts {
        self.circuit.snapshot(&self.policy, self.now_us).counts
    }
}

/// Nothing opens here: these tests watch what is counted.
fn watching() -> Settings {
    Settings { failures: 1_000_000, failure_percent: None, window: Duration::from_secs(10), ..Settings::default() }
}

#[test]
fn a_healthy_target_is_never_reported() {
    let mut fleet = Fleet::new(&watching());
    for index in 0..10_000 {
        fleet.call(index % 3, Outcome::Success);
        fleet.now_us += MS;
    }
    assert_eq!(fleet.sent(), 0);
}

#[test]
fn after_the_first_failure_the_rate_is_right_to_what_one_refresh_holds() {
    let mut fleet = Fleet::new(&watching());
    // Ten seconds of a call each millisecond, the last five with one in twenty failing in one process only.
    let mut failed = 0;
    for index in 0..10_000_usize {
        let is_failure = index >= 5_000 && index % 20 == 0;
        failed += u64::from(is_failure);
        fleet
            .call(if is_failure { 0 } else { index % 3 }, if is_failure { Outcome::Failure } else { Outcome::Success });
        fleet.now_us += MS;
    }
    let counts = fleet.counts();
    assert_eq!(counts.failures, failed, "every failure is counted at once");
    // The window forgets up to a tenth; of the rest, each process may hold back one refresh (250 ms) of its calls.
    assert!((9_000 - 250 - 250..=10_000).contains(&counts.calls), "{} calls of 10,000 are known", counts.calls);
    assert!(fleet.sent() < 1_000, "{} reports for 10,000 calls", fleet.sent());
}

#[test]
fn a_success_of_another_process_breaks_the_row_within_one_refresh() {
    let mut fleet = Fleet::new(&Settings { failures: 3, ..watching() });
    fleet.call(1, Outcome::Success);
    fleet.call(0, Outcome::Failure);
    fleet.call(0, Outcome::Failure);
    fleet.now_us += 250 * MS;
    fleet.call(1, Outcome::Success);
    fleet.call(0, Outcome::Failure);
    assert_eq!(fleet.circuit.snapshot(&fleet.policy, fleet.now_us).failures, 1);
}

#[test]
fn successes_from_before_the_circuit_opened_are_not_counted_after_it_closed() {
    let mut fleet = Fleet::new(&watching());
    for _ in 0..50 {
        fleet.call(0, Outcome::Success);
    }
    fleet.circuit.force(None, fleet.now_us);
    fleet.now_us += 250 * MS;
    fleet.call(0, Outcome::Failure);
    assert_eq!(fleet.counts().calls, 1);
}

/// A pass on paper enters at one process and leaves at another, which need not have heard of the circuit.
#[test]
fn a_process_that_only_ends_calls_counts_them_as_the_one_that_let_them_pass() {
    let mut fleet = Fleet::new(&watching());
    for _ in 0..3 {
        fleet.circuit.force(None, fleet.now_us);
        fleet.now_us += 250 * MS;
        let generations: Vec<u64> = (0..10).map(|_| fleet.admit(0)).collect();
        for generation in generations {
            fleet.report(1, generation, Outcome::Success);
        }
    }
    let generation = fleet.admit(0);
    fleet.report(1, generation, Outcome::Failure);
    assert_eq!((fleet.counts().calls, fleet.counts().failures), (11, 1));
}
