//! The gate in Redis equals the gate in memory: random histories through both give the same answers.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::{Entry, Exit, Gate, Outcome, Pass, Policy, Refused, Token};
use crate::redis::Config;
use crate::rig::Rig;
use crate::{Backend, Clock, Key, breaker, fallback, limiter, semaphore};

const HISTORIES: u32 = 120;
const STEPS: usize = 90;
const START_US: u64 = 1_700_000_000_000_000;

#[derive(Clone, Debug)]
enum Act {
    /// Calls at a time: those that have to wait for the first ones share a script.
    Enter {
        costs: Vec<u64>,
        on_paper: bool,
    },
    /// Orders the circuit by hand, also of a target whose callers bring none; `None`: ends the order.
    Order {
        force: Option<breaker::Force>,
        for_us: u64,
    },
    /// Ends one of the passes that are out; the paper of one that was ended may be shown again.
    Exit {
        pick: usize,
        outcome: Outcome,
    },
    Renew {
        pick: usize,
    },
}

fn step() -> impl Strategy<Value = (u64, Act)> {
    let pause_us = prop_oneof![4 => Just(0_u64), 5 => 1..50_000_u64, 1 => 100_000..3_000_000_u64];
    let outcome = prop_oneof![3 => Just(Outcome::Success), 4 => Just(Outcome::Failure), 1 => Just(Outcome::Ignored)];
    let orders = proptest::sample::select(vec![Some(breaker::Force::Open), Some(breaker::Force::Closed), None]);
    let act = prop_oneof![
        8 => (1..4_u64, any::<bool>()).prop_map(|(cost, on_paper)| Act::Enter { costs: vec![cost], on_paper }),
        2 => vec(1..4_u64, 3..9).prop_map(|costs| Act::Enter { costs, on_paper: false }),
        1 => (orders, 1..200_000_u64).prop_map(|(force, for_us)| Act::Order { force, for_us }),
        8 => (any::<usize>(), outcome).prop_map(|(pick, outcome)| Act::Exit { pick, outcome }),
        3 => any::<usize>().prop_map(|pick| Act::Renew { pick }),
    ];
    (pause_us, act)
}

fn policy() -> impl Strategy<Value = Policy> {
    let algorithms = [limiter::Algorithm::SlidingLog, limiter::Algorithm::Gcra, limiter::Algorithm::TokenBucket];
    let rate = proptest::option::of((proptest::sample::select(algorithms.to_vec()), 3..12_u64));
    let ahead_ms = prop_oneof![Just(0_u64), 1..60_u64];
    (rate, proptest::option::of(1..4_u32), proptest::option::of(1..4_u32), ahead_ms).prop_map(
        |(rate, failures, permits, ahead_ms)| {
            let mut policy = Policy::default().ahead(Duration::from_millis(ahead_ms));
            if let Some((algorithm, limit)) = rate {
                policy = policy.rate(limiter::Policy::new(algorithm, limit, Duration::from_millis(100)).unwrap());
            }
            if let Some(failures) = failures {
                let millis = Duration::from_millis;
                let settings = breaker::Settings {
                    failures,
                    min_calls: 3,
                    window: millis(500),
                    gather: Duration::ZERO,
                    open: millis(40),
                    open_cap: millis(200),
                    probe_lease: millis(60),
                    longest_call: millis(60),
                    refresh: Duration::ZERO,
                    ..breaker::Settings::default()
                };
                policy = policy.circuit(breaker::Policy::new(&settings).unwrap());
            }
            if let Some(permits) = permits {
                policy = policy.concurrency(semaphore::Policy::new(permits, Duration::from_millis(80)).unwrap());
            }
            policy
        },
    )
}

/// One side of the comparison: a gate and the passes that are out.
struct Side {
    gate: Gate,
    out: Vec<Out>,
}

enum Out {
    Pass(Box<Pass>),
    Paper(Token),
}

/// What both sides must agree on.
#[derive(Debug, PartialEq)]
enum Seen {
    Pass { is_probe: bool, remaining: Option<u64>, delay: Duration },
    Refused(Refused),
    Exit(Exit),
    Renewed(bool),
}

impl Seen {
    fn whenever(self) -> Seen {
        match self {
            Seen::Refused(refused) => Seen::Refused(Refused { retry_after: None, ..refused }),
            other => other,
        }
    }
}

impl Side {
    async fn apply(&mut self, target: &Key, policy: &Policy, act: &Act) -> Vec<Seen> {
        match act {
            Act::Enter { costs, on_paper } => {
                let enter = |cost: &u64| self.gate.enter(target, policy, NonZeroU64::new(*cost).unwrap());
                let entries = futures_util::future::join_all(costs.iter().map(enter)).await;
                let seen = entries.into_iter().map(|entry| self.entered(entry, *on_paper));
                // Of several that ask at a time, one may be told what an earlier one heard.
                if costs.len() == 1 { seen.collect() } else { seen.map(Seen::whenever).collect() }
            }
            Act::Order { force, for_us } => {
                let breaker = self.gate.breaker();
                match force {
                    Some(force) => breaker.force(target, *force, Duration::from_micros(*for_us)).await.unwrap(),
                    None => breaker.automatic(target).await.unwrap(),
                }
                Vec::new()
            }
            Act::Exit { pick, outcome } => {
                if self.out.is_empty() {
                    return Vec::new();
                }
                let index = pick % self.out.len();
                if let Out::Paper(token) = self.out[index] {
                    if pick % 4 > 0 {
                        self.out.remove(index);
                    }
                    return vec![Seen::Exit(self.gate.exit(target, policy, &token, *outcome, Duration::ZERO).await)];
                }
                if let Out::Pass(pass) = self.out.remove(index) {
                    pass.exit(*outcome).await;
                }
                Vec::new()
            }
            Act::Renew { pick } => match self.out.get(pick % self.out.len().max(1)) {
                Some(Out::Paper(token)) => vec![Seen::Renewed(self.gate.renew(target, policy, token).await)],
                Some(Out::Pass(_)) | None => Vec::new(),
            },
        }
    }

    fn entered(&mut self, entry: Entry, on_paper: bool) -> Seen {
        match entry {
            Entry::Pass(pass) => {
                let remaining = pass.rate().map(|rate| rate.remaining);
                let seen = Seen::Pass { is_probe: pass.is_probe(), remaining, delay: pass.delay() };
                self.out.push(if on_paper { Out::Paper(pass.detach()) } else { Out::Pass(Box::new(pass)) });
                seen
            }
            Entry::Refused(refused) => Seen::Refused(refused),
        }
    }
}

#[test]
fn the_gate_in_redis_equals_the_gate_in_memory() {
    let server = testkit::need!(testkit::redis());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _guard = runtime.enter();
    let clock = Clock::manual(START_US);
    let config = Config { prefix: server.prefix().to_owned(), ..Config::new(server.url()) };
    let patient = fallback::Config { deadline: Duration::from_secs(10), ..fallback::Config::default() };
    let backend = Backend::redis_with(config, patient, clock.clone()).unwrap();
    let (shared, local) = (Gate::new(&backend), Gate::new(&Backend::memory_with(clock.clone())));
    let (clock, runtime) = (Arc::new(clock), &runtime);
    Rig::histories(HISTORIES, &(policy(), vec(step(), STEPS)), |(policy, steps)| {
        let target = Rig::fresh_key();
        let mut sides = [shared.clone(), local.clone()].map(|gate| Side { gate, out: Vec::new() });
        for (index, (pause_us, act)) in steps.iter().enumerate() {
            clock.advance(Duration::from_micros(*pause_us));
            let [in_redis, in_memory] = &mut sides;
            let answers = runtime.block_on(async {
                (in_redis.apply(&target, &policy, act).await, in_memory.apply(&target, &policy, act).await)
            });
            if answers.0 != answers.1 || backend.fallback().is_active() {
                return Err(TestCaseError::fail(format!("step {index} {act:?}: redis and memory say {answers:?}")));
            }
        }
        Ok(())
    });
}

/// Each of thousands that wait in line holds one.
#[test]
fn a_call_on_its_way_in_holds_little() {
    let (gate, key, policy) = (Gate::new(&Backend::memory()), Key::new("x").unwrap(), Policy::default());
    let size = std::mem::size_of_val(&gate.enter(&key, &policy, NonZeroU64::MIN));
    assert!(size <= 1024, "{size} bytes");
}
