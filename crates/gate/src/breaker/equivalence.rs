//! Lua equals the rules: random histories through both give the same answers, step by step.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::circuit::{Check, Circuit, Force, Outcome, Recorded, Report, Snapshot};
use super::redis::RedisBreaker;
use super::window::Past;
use super::{Answer, Policy, Settings, Ticket};
use crate::rig::Rig;
use crate::{Holder, Key};

#[derive(Clone, Debug)]
enum Event {
    /// Callers may bring leases of different lengths.
    Admit {
        leases: u64,
    },
    /// Reports one of the tickets still out, or the last one again.
    Record {
        pick: usize,
        outcome: Outcome,
        slow: bool,
        reporter: u8,
        past: Vec<(u64, u64)>,
    },
    Force(Option<(Force, u64)>),
    View,
}

/// Steps of time: mostly small, sometimes past an open time or a lease, rarely backwards.
fn step() -> impl Strategy<Value = i64> {
    prop_oneof![6 => 0i64..3_000, 3 => 3_000i64..200_000, 1 => 200_000i64..3_000_000, 1 => -5_000i64..0, 1 => Just(-900_000)]
}

fn event() -> impl Strategy<Value = Event> {
    let outcome = prop_oneof![4 => Just(Outcome::Success), 4 => Just(Outcome::Failure), 1 => Just(Outcome::Ignored)];
    let past = prop_oneof![3 => Just(Vec::new()), 1 => vec((0u64..12, 1u64..4), 1..3)];
    let record = (any::<usize>(), outcome, proptest::bool::weighted(0.3), 0u8..4, past)
        .prop_map(|(pick, outcome, slow, reporter, past)| Event::Record { pick, outcome, slow, reporter, past });
    let force = prop_oneof![Just(None), Just(Some((Force::Open, 50_000))), Just(Some((Force::Closed, 50_000))),];
    prop_oneof![16 => (1u64..4).prop_map(|leases| Event::Admit { leases }), 20 => record, 1 => force.prop_map(Event::Force), 4 => Just(Event::View)]
}

fn policy() -> impl Strategy<Value = Policy> {
    let millis = Duration::from_millis;
    (1u32..4, 0u32..3, 1u32..6, 1u32..3, 1u32..4, 0u64..5).prop_map(
        move |(failures, rates, min_calls, quorum, probes, gather)| {
            Policy::new(&Settings {
                failures: failures * 2,
                failure_percent: (rates != 1).then_some(50),
                slow_percent: (rates != 0).then_some(30),
                slow_call: millis(1),
                min_calls,
                window: millis(100),
                gather: millis(gather),
                quorum,
                open: millis(20),
                open_cap: millis(70),
                probes,
                probe_lease: millis(30),
                longest_call: millis(30),
                ttl: Duration::from_hours(1),
                refresh: millis(0),
            })
            .unwrap()
        },
    )
}

#[derive(Debug, PartialEq)]
enum Said {
    Check(Check),
    Recorded(Recorded),
    Generation(u64),
    Snapshot(Snapshot),
}

struct Both {
    rig: Rig,
    shared: RedisBreaker,
    seen: RefCell<BTreeMap<String, u32>>,
}

impl Both {
    fn new(server: &testkit::redis::Shared) -> Both {
        let rig = Rig::new(server);
        Both { shared: RedisBreaker::new(rig.redis.clone()), rig, seen: RefCell::default() }
    }

    /// One history on a fresh target.
    fn run(&self, policy: &Policy, history: &[(i64, Event)]) -> Result<(), TestCaseError> {
        let target = Rig::fresh_key();
        let (mut circuit, mut now_us) = (Circuit::default(), 1_000_000_000_000_000_u64);
        let mut tickets: Vec<Ticket> = vec![Ticket { generation: 0, probe: None }];
        for (step, event) in history {
            now_us = now_us.saturating_add_signed(*step);
            self.rig.clock.set_us(now_us);
            let (redis, rules) = match event {
                Event::Admit { leases } => {
                    let probe_lease_us = policy.probe_lease_us * leases;
                    let policy = Policy { probe_lease_us, ..policy.clone() };
                    self.admit(&target, &policy, &mut circuit, &mut tickets, now_us)
                }
                Event::Record { pick, outcome, slow, reporter, past } => {
                    // Mostly the latest, so that probes report while they live; some report twice.
                    let index = if pick % 4 > 0 { tickets.len() - 1 } else { pick % tickets.len() };
                    let ticket = tickets[index];
                    if pick % 3 > 0 && tickets.len() > 1 {
                        tickets.remove(index);
                    }
                    let report = Report {
                        generation: ticket.generation,
                        probe: ticket.probe,
                        outcome: *outcome,
                        slow: *slow,
                        reporter: Holder::fixed((*reporter).into()),
                        past: past.iter().map(|(age, calls)| Past { age: *age, calls: *calls }).collect(),
                    };
                    let redis = self.rig.ask(self.shared.record(&target, policy, &report));
                    (Said::Recorded(redis), Said::Recorded(circuit.record(policy, &report, now_us)))
                }
                Event::Force(force) => {
                    let redis = self.rig.ask(self.shared.force(&target, policy, *force));
                    circuit.force(*force, now_us);
                    (Said::Generation(redis), Said::Generation(circuit.snapshot(policy, now_us).generation))
                }
                Event::View => {
                    let redis = self.rig.ask(self.shared.view(&target, policy));
                    (Said::Snapshot(redis), Said::Snapshot(circuit.snapshot(policy, now_us)))
                }
            };
            self.count(&rules);
            prop_assert_eq!(redis, rules, "after {:?} at {}", event, now_us);
        }
        Ok(())
    }

    /// Histories that never leave the closed phase would prove little.
    fn count(&self, said: &Said) {
        let kind = match said {
            Said::Check(Check::Pass { .. }) => "pass".to_owned(),
            Said::Check(Check::Probe) => "probe".to_owned(),
            Said::Check(Check::Reject { reason, .. }) => format!("reject {reason:?}"),
            Said::Recorded(recorded) if recorded.changed => format!("became {:?}", recorded.state),
            Said::Recorded(_) | Said::Generation(_) | Said::Snapshot(_) => return,
        };
        *self.seen.borrow_mut().entry(kind).or_default() += 1;
    }

    fn admit(
        &self,
        target: &Key,
        policy: &Policy,
        circuit: &mut Circuit,
        tickets: &mut Vec<Ticket>,
        now_us: u64,
    ) -> (Said, Said) {
        let (answer, check) = self.rig.ask(self.shared.admit(target, policy));
        let rules = circuit.check(policy, now_us);
        if let Answer::Pass(ticket) = answer {
            tickets.push(ticket);
            if let (Check::Probe, Some(holder)) = (rules, ticket.probe) {
                let generation = circuit.take_probe(policy, holder, now_us);
                assert_eq!(ticket.generation, generation, "the probe's generation");
            }
        }
        (Said::Check(check), Said::Check(rules))
    }
}

/// 300 histories of 40 to 80 steps: at least 12,000 steps a run.
#[test]
fn whatever_happens_in_whatever_order_lua_and_the_rules_agree() {
    let server = testkit::need!(testkit::redis());
    let both = Both::new(&server);
    Rig::histories(300, &(policy(), vec((step(), event()), 40..80)), |(policy, history)| both.run(&policy, &history));
    let seen = both.seen.borrow();
    let reasons = ["ConsecutiveFailures", "FailureRate", "SlowRate", "ProbeFailed", "Forced"];
    let kinds = reasons.map(|reason| format!("reject Some({reason})")).into_iter();
    for kind in kinds.chain(["pass", "probe", "became Open", "became Closed"].map(str::to_owned)) {
        assert!(seen.get(&kind).is_some_and(|times| *times >= 10), "{kind} hardly happened: {seen:?}");
    }
}
