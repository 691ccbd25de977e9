//! A replica: this test binary again, as a process of its own with its own backend, clock and connection.
//!
//! The parent starts it with the name of a part to play and what the part needs; the replica says what happens in lines
//! that begin with `@`. It dies with its parent's handle, or when the parent kills it, which is often the point.

use std::fmt::Write as _;
use std::process::Stdio;
use std::time::Duration;

use gate::breaker::{Admission, Breaker, Policy as Circuits, Settings};
use gate::redis::{Config, Status};
use gate::semaphore::{Acquired, Policy as Permits, Semaphore};
use gate::{Backend, Clock, fallback};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::backends::{key, until};

const PART: &str = "GATE_TEST_PART";
const START: Duration = Duration::from_secs(30);

/// What a replica plays.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// Takes permits of the key `held` and keeps them for ever.
    Hold { permits: u32, limit: u32, lease_ms: u64 },
    /// Takes every probe of the open target `probed` and never reports.
    Probe { settings: Probing },
}

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
    lines: Lines<BufReader<ChildStdout>>,
}

impl Replica {
    pub(crate) fn start(place: &Place, part: &Part) -> Replica {
        let mut text = format!("{} {}", place.url, place.prefix);
        match part {
            Part::Hold { permits, limit, lease_ms } => write!(text, " hold {permits} {limit} {lease_ms}"),
            Part::Probe { settings } => write!(text, " probe {} {}", settings.open_ms, settings.lease_ms),
        }
        .expect("writing to a String cannot fail");
        let binary = std::env::current_exe().expect("a running binary knows its path");
        let mut command = Command::new(binary);
        command.args(["--exact", "replica::plays_the_part_its_parent_gives_it", "--nocapture"]);
        command.env(PART, text).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("the test binary can be started again");
        let stdout = child.stdout.take().expect("the output is piped");
        Replica { child, lines: BufReader::new(stdout).lines() }
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
    until(START, "Redis", async || backend.connection() == Some(Status::Connected)).await;
    match (*part, &numbers[..]) {
        ("hold", &[permits, limit, lease_ms]) => hold(&backend, permits, limit, lease_ms).await,
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
    until(START, "every probe", async || {
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
