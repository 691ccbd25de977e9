//! Three replicas on one Redis, and callers that keep their connections and their pace.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use crate::support::{Setup, Tidegate};

pub(super) const REPLICAS: usize = 3;
/// The rule of all these tests; small, so that a machine that is busy with other tests can offer much more.
pub(super) const LIMIT: u64 = 100;
const CALLERS_PER_REPLICA: usize = 4;

/// One answered check.
#[derive(Clone, Copy)]
pub(super) struct Checked {
    pub(super) sent: Instant,
    pub(super) answered: Instant,
    pub(super) is_allowed: bool,
    pub(super) is_degraded: bool,
}

pub(super) struct Fleet {
    pub(super) replicas: Vec<Tidegate>,
}

impl Fleet {
    /// Replicas with one rule for every key, that wait for Redis as long as this machine is busy with other tests.
    pub(super) fn patient(redis_url: &str, algorithm: &str) -> Fleet {
        Fleet::start(redis_url, algorithm, "5s")
    }

    /// The same with a deadline for Redis.
    pub(super) fn start(redis_url: &str, algorithm: &str, deadline: &str) -> Fleet {
        let rules = format!("[[rule]]\nkey = \"*\"\nlimit = {LIMIT}\nwindow = \"1s\"\nalgorithm = \"{algorithm}\"\n");
        let replica = |_| {
            Setup::serve()
                .env("REDIS_URL", redis_url)
                .env("TIDEGATE__REDIS__DEADLINE", deadline)
                .env("TIDEGATE__SERVER__ROLES", "limits")
                .file("rules.toml", &rules)
                .env("TIDEGATE__LIMITS__RULES_FILE", "rules.toml")
                .start()
        };
        let fleet = Fleet { replicas: (0..REPLICAS).map(replica).collect() };
        // The replicas count each other by heartbeats; shares need the right number.
        testkit::wait_until(Duration::from_secs(20), "Redis to decide at every replica", || {
            fleet.replicas.iter().all(|replica| !ask(&mut connect(replica.addr()), "warm-up").is_degraded)
        });
        fleet
    }

    /// Checks of one key at this pace, spread over the replicas; each caller keeps its connection.
    pub(super) fn load(&self, per_second: u32, lasting: Duration) -> Vec<Checked> {
        let callers = REPLICAS * CALLERS_PER_REPLICA;
        let pause = Duration::from_secs(1) * u32::try_from(callers).unwrap() / per_second;
        let began = Instant::now();
        let caller = |number: usize| {
            let addr = self.replicas[number % REPLICAS].addr();
            move || {
                let mut connection = connect(addr);
                let mut due = began + pause * u32::try_from(number).unwrap() / u32::try_from(callers).unwrap();
                let mut answers = Vec::new();
                while due < began + lasting {
                    // A pace, not a wait for something.
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    answers.push(ask(&mut connection, "shared"));
                    due += pause;
                }
                answers
            }
        };
        let running: Vec<_> = (0..callers).map(|number| thread::spawn(caller(number))).collect();
        running.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
    }
}

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// One check on an open connection. Anything but an answer ends the test: callers must never see an error.
fn ask(connection: &mut TcpStream, key: &str) -> Checked {
    let body = format!("{{\"key\":\"{key}\"}}");
    let request =
        format!("POST /v1/limits/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let sent = Instant::now();
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::with_capacity(1024);
    let mut chunk = [0; 1024];
    while !answer.ends_with(b"}") {
        let count = connection.read(&mut chunk).unwrap();
        assert!(count > 0, "the connection was closed: {}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&chunk[..count]);
    }
    let text = String::from_utf8_lossy(&answer);
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    Checked {
        sent,
        answered: Instant::now(),
        is_allowed: text.contains("\"allowed\":true"),
        is_degraded: text.contains("\"degraded\":true"),
    }
}

pub(super) fn allowed(calls: &[Checked]) -> u64 {
    calls.iter().filter(|call| call.is_allowed).count() as u64
}

pub(super) fn degraded(calls: &[Checked]) -> usize {
    calls.iter().filter(|call| call.is_degraded).count()
}

/// From the first call to the last answer.
pub(super) fn span(calls: &[Checked]) -> Duration {
    let first = calls.iter().map(|call| call.sent).min().unwrap();
    calls.iter().map(|call| call.answered).max().unwrap() - first
}

pub(super) fn p99(calls: &[Checked]) -> Duration {
    let mut all: Vec<Duration> = calls.iter().map(|call| call.answered - call.sent).collect();
    all.sort();
    all[all.len() * 99 / 100]
}

/// What a limit lets through in this time: `factor` of it, so many bursts, and one call per replica.
pub(super) fn bound(factor: f64, lasting: Duration, bursts: u64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
    let steady = (factor * LIMIT as f64 * lasting.as_secs_f64()).ceil() as u64;
    steady + bursts * LIMIT + REPLICAS as u64
}

/// What should have passed: the limit in every second, or all of it where less was asked.
pub(super) fn due(calls: &[Checked]) -> f64 {
    let first = calls.iter().map(|call| call.sent).min().unwrap();
    let mut seconds = std::collections::BTreeMap::<u64, u64>::new();
    for call in calls {
        *seconds.entry((call.answered - first).as_secs()).or_default() += 1;
    }
    // The last second is not whole.
    seconds.pop_last();
    seconds.values().map(|asked| (*asked).min(LIMIT) as f64).sum()
}
