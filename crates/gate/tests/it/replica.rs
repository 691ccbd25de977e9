//! A replica: this test binary again, as a process of its own with its own backend, clock and connection.
//!
//! The parent starts it with the name of a part to play and what the part needs; the replica says what happens in lines
//! that begin with `@`. It dies with its parent's handle, or when the parent kills it, which is often the point.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use gate::breaker::{Admission, Breaker, Policy as Circuits, Settings};
use gate::limiter::{Algorithm, Limiter, Policy as Limits};
use gate::redis::{Config, Status};
use gate::semaphore::{Acquired, Policy as Permits, Semaphore};
use gate::{Backend, Clock, fallback};
use testkit::{Server, Unavailable, eventually};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::backends::key;
use crate::load::{Call, offer};

const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
const PART: &str = "GATE_TEST_PART";
const START: Duration = Duration::from_secs(60);

/// What a replica plays.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// Takes permits of the key `held` and keeps them for ever.
    Hold { permits: u32, limit: u32, lease_ms: u64 },
    /// Takes every probe of the open target `probed` and never reports.
    Probe { settings: Probing },
    /// Says `ready`, waits for a line, offers calls to the key `loaded`, and says each answered call and `end`.
    Load(Load),
}

/// One replica's part of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) algorithm: Algorithm,
    /// Per second, over all replicas.
    pub(crate) limit: u64,
    /// What this replica offers.
    pub(crate) per_second: u64,
    pub(crate) lasting: Duration,
}

const ALGORITHMS: [Algorithm; 2] = [Algorithm::SlidingLog, Algorithm::Gcra];

/// The breaker of the probing test, the same in parent and replica.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probing {
    pub(crate) open_ms: u64,
    pub(crate) lease_ms: u64,
}

impl Probing {
    pub(crate) fn breaker(self, backend: &Backend) -> Breaker {
        let settings = Settings {
            open: Duration::from_millis(self.open_ms),
            open_cap: Duration::from_millis(self.open_ms),
            probe_lease: Duration::from_millis(self.lease_ms),
            longest_call: Duration::from_millis(self.lease_ms),
            refresh: Duration::ZERO,
            ..Settings::default()
        };
        Breaker::new(backend, Circuits::new(&settings).expect("the settings are valid"))
    }
}

/// Where Redis is, for a replica.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) prefix: String,
}

pub(crate) struct Replica {
    child: Child,
    orders: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Replica {
    pub(crate) fn start(place: &Place, part: &Part) -> Replica {
        Replica::start_skewed(place, part, 0)
    }

    /// Another wall clock for one process needs a library.
    pub(crate) fn can_be_skewed() -> Result<(), Unavailable> {
        let reason = "this test also needs libfaketime: apt-get install libfaketime";
        if Path::new(FAKETIME).exists() { Ok(()) } else { Err(Unavailable::new(Server::Redis, reason)) }
    }

    /// A replica whose wall clock is this many seconds ahead.
    pub(crate) fn start_skewed(place: &Place, part: &Part, skew_s: i64) -> Replica {
        let mut text = format!("{} {}", place.url, place.prefix);
        match part {
            Part::Hold { permits, limit, lease_ms } => write!(text, " hold {permits} {limit} {lease_ms}"),
            Part::Probe { settings } => write!(text, " probe {} {}", settings.open_ms, settings.lease_ms),
            Part::Load(load) => {
                let algorithm = ALGORITHMS.iter().position(|known| *known == load.algorithm);
                let algorithm = algorithm.expect("a replica knows the algorithm");
                let Load { limit, per_second, lasting, .. } = load;
                write!(text, " load {algorithm} {limit} {per_second} {}", lasting.as_millis())
            }
        }
        .expect("writing to a String cannot fail");
        let binary = std::env::current_exe().expect("a running binary knows its path");
        let mut command = Command::new(binary);
        command.args(["--exact", "replica::plays_the_part_its_parent_gives_it", "--nocapture"]);
        command.env(PART, text).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        if skew_s != 0 {
            command.env("LD_PRELOAD", FAKETIME).env("FAKETIME", format!("{skew_s:+}s")).env("DONT_FAKE_MONOTONIC", "1");
        }
        let mut child = command.spawn().expect("the test binary can be started again");
        let stdout = child.stdout.take().expect("the output is piped");
        let orders = child.stdin.take().expect("the input is piped");
        Replica { child, orders, lines: BufReader::new(stdout).lines() }
    }

    /// Lets a replica that is ready begin.
    pub(crate) async fn go(&mut self) {
        self.orders.write_all(b"go\n").await.expect("the replica listens");
    }

    /// Every call of a load, on this process's clock.
    pub(crate) async fn calls(&mut self, skew_s: i64) -> Vec<Call> {
        let mut calls = Vec::new();
        loop {
            let said = self.says().await;
            if said == "end" {
                return calls;
            }
            let numbers: Vec<i64> = said.split(' ').map(|word| word.parse().expect("a number")).collect();
            let &[sent_us, answered_us, allowed, degraded] = &numbers[..] else { panic!("not a call: {said:?}") };
            let here = |there_us: i64| u64::try_from(there_us - skew_s * 1_000_000).expect("a time of this century");
            let (sent_us, answered_us) = (here(sent_us), here(answered_us));
            calls.push(Call { sent_us, answered_us, allowed: allowed == 1, degraded: degraded == 1 });
        }
    }

    /// The next thing the replica says.
    pub(crate) async fn says(&mut self) -> String {
        let next = async {
            while let Some(line) = self.lines.next_line().await.expect("the pipe is readable") {
                if let Some((_, said)) = line.split_once('@') {
                    return said.to_owned();
                }
            }
            panic!("the replica ended without a word");
        };
        tokio::time::timeout(START, next).await.expect("the replica speaks in time")
    }

    /// `kill -9`.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("a child can be killed");
    }
}

/// Does nothing in an ordinary run; in a replica it is the whole program.
#[test]
fn plays_the_part_its_parent_gives_it() {
    #[expect(clippy::disallowed_methods, reason = "the parent says through the environment what to play")]
    let Ok(text) = std::env::var(PART) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(play(&text));
}

async fn play(text: &str) {
    let words: Vec<&str> = text.split(' ').collect();
    let [url, prefix, part, numbers @ ..] = &words[..] else { panic!("no part in {text:?}") };
    let numbers: Vec<u64> = numbers.iter().map(|word| word.parse().expect("the rest are numbers")).collect();
    let config = Config { prefix: (*prefix).to_owned(), ..Config::new(*url) };
    let patient = fallback::Config { deadline: Duration::from_secs(5), ..fallback::Config::default() };
    let backend = Backend::redis_with(config, patient, Clock::System).expect("the URL is valid");
    eventually(START, "Redis", async || backend.connection() == Some(Status::Connected)).await;
    match (*part, &numbers[..]) {
        ("hold", &[permits, limit, lease_ms]) => hold(&backend, permits, limit, lease_ms).await,
        ("load", &[algorithm, limit, per_second, millis]) => {
            let algorithm = ALGORITHMS[usize::try_from(algorithm).expect("a small number")];
            let lasting = Duration::from_millis(millis);
            load(&backend, Load { algorithm, limit, per_second, lasting }).await;
        }
        ("probe", &[open_ms, lease_ms]) => probe(&backend, Probing { open_ms, lease_ms }).await,
        _ => panic!("unknown part {text:?}"),
    }
}

#[expect(clippy::print_stdout, reason = "the parent reads it")]
fn say(what: &str) {
    println!("\n@{what}");
}

async fn hold(backend: &Backend, permits: u64, limit: u64, lease_ms: u64) {
    let limit = u32::try_from(limit).expect("limits are small");
    let policy = Permits::new(limit, Duration::from_millis(lease_ms)).expect("the policy is valid");
    let semaphore = Semaphore::new(backend, policy);
    let mut held = Vec::new();
    for _ in 0..permits {
        match semaphore.acquire(&key("held"), START).await {
            Acquired::Permit(permit) => held.push(permit),
            full @ Acquired::Full { .. } => panic!("{full:?}"),
        }
    }
    say("holds");
    std::future::pending::<()>().await;
}

async fn probe(backend: &Backend, settings: Probing) {
    let breaker = settings.breaker(backend);
    let mut probes = Vec::new();
    eventually(START, "every probe", async || {
        if let Admission::Pass(pass) = breaker.admit(&key("probed")).await {
            assert!(pass.is_probe(), "the parent opened the circuit");
            probes.push(pass);
        }
        probes.len() == 3
    })
    .await;
    say("probes");
    std::future::pending::<()>().await;
}

async fn load(backend: &Backend, load: Load) {
    let policy = Limits::new(load.algorithm, load.limit, Duration::from_secs(1)).expect("the policy is valid");
    let limiter = Limiter::new(backend);
    say("ready");
    let mut order = String::new();
    BufReader::new(tokio::io::stdin()).read_line(&mut order).await.expect("the parent gives an order");
    for call in offer(&limiter, &key("loaded"), policy, load.per_second, load.lasting).await {
        let Call { sent_us, answered_us, allowed, degraded } = call;
        say(&format!("{sent_us} {answered_us} {} {}", u8::from(allowed), u8::from(degraded)));
    }
    say("end");
}
