//! Three replicas on one Redis, and callers that keep their connections and their pace.
//!
//! The load is the clock of a story: a fault lasts as long as it takes to offer so many calls, so a slow machine stretches
//! the time and not the meaning. Fleets run one at a time, because the bars speak of milliseconds and the machine is small.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use testkit::wait_until;

use super::measure::{Checked, wall_us};
use crate::support::{Setup, Tidegate};

pub(super) const REPLICAS: usize = 3;
/// Of every rule here, per second.
pub(super) const LIMIT: u64 = 1_000;
/// What rules with a burst let through at once.
pub(super) const BURST: u64 = 100;
/// What the bars offer.
pub(super) const OFFERED: u32 = 5_000;
/// `redis.deadline` unless a fleet is patient.
pub(super) const DEADLINE: Duration = Duration::from_millis(50);
/// Calls that may be under way at once, which a Redis that hangs holds up.
const CALLERS_PER_REPLICA: usize = 16;

/// `shared` has the limit; a few keys are counted and never refused; every other key has room for five calls.
const RULES: &str = r#"
[[rule]]
key = "shared"
limit = LIMIT
window = "1s"
algorithm = "ALGORITHM"
BURST

[[rule]]
key = "few-*"
limit = 1000000
window = "1h"
algorithm = "fixed_window"

[[rule]]
key = "*"
limit = 5
window = "1h"
algorithm = "fixed_window"
"#;

#[derive(Clone, Copy)]
pub(super) enum Algorithm {
    SlidingLog,
    TokenBucket,
    Gcra,
}

/// Which keys a load asks for.
#[derive(Clone, Copy)]
pub(super) enum Keys {
    /// The one with the limit, several times in a request: a small machine can offer more that way.
    Shared,
    /// The same, once.
    SharedAlone,
    /// One of twenty, in turn.
    Few,
    /// Every call has one of its own.
    Own,
}

impl Keys {
    fn in_a_request(self) -> usize {
        match self {
            Keys::Shared => 5,
            Keys::SharedAlone | Keys::Few | Keys::Own => 1,
        }
    }

    fn of(self, turn: usize) -> Vec<String> {
        match self {
            Keys::Shared | Keys::SharedAlone => vec!["shared".to_owned(); self.in_a_request()],
            Keys::Few => vec![format!("few-{}", turn % 20)],
            Keys::Own => vec![own_key(turn)],
        }
    }
}

pub(super) struct Fleet {
    pub(super) replicas: Vec<Tidegate>,
    _alone: MutexGuard<'static, ()>,
}

impl Fleet {
    /// Replicas with the settings of production.
    pub(super) fn start(redis_url: &str, algorithm: Algorithm) -> Fleet {
        Fleet::each_on(&[redis_url; REPLICAS], algorithm, DEADLINE)
    }

    /// Replicas that wait for Redis as long as the machine is busy, where a fallback would hide what a test looks for.
    pub(super) fn patient(redis_url: &str, algorithm: Algorithm) -> Fleet {
        Fleet::each_on(&[redis_url; REPLICAS], algorithm, Duration::from_secs(5))
    }

    /// Every replica with its own way to Redis.
    pub(super) fn each_on(redis_urls: &[&str; REPLICAS], algorithm: Algorithm, deadline: Duration) -> Fleet {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let replicas: Vec<Tidegate> = redis_urls.map(|url| setup(url, algorithm, deadline).spawn()).into();
        let mut fleet = Fleet { replicas, _alone: alone };
        fleet.replicas.iter_mut().for_each(Tidegate::wait_until_ready);
        for replica in &fleet.replicas {
            // Shares are right once all have heard of all.
            wait_until(LATER, "the replica to know the others", || {
                replica.metric("redis_replicas") == Some(REPLICAS as f64)
            });
            wait_until(LATER, "Redis to decide", || {
                !ask(&mut connect(replica.addr()), &["warm-up".to_owned()])[0].is_degraded
            });
        }
        fleet
    }

    /// Checks at this pace, spread over the replicas, for a time.
    pub(super) fn load(&self, per_second: u32, lasting: Duration) -> Vec<Checked> {
        self.during(per_second, Keys::Shared, |pace| pace.pass(lasting)).0
    }

    /// Checks at this pace while the story is told; ends with it.
    pub(super) fn during<T>(&self, per_second: u32, keys: Keys, story: impl FnOnce(&Pace) -> T) -> (Vec<Checked>, T) {
        let pace = Pace { per_second, began: Instant::now(), sent: AtomicU64::new(0), is_over: AtomicBool::new(false) };
        let callers = REPLICAS * CALLERS_PER_REPLICA;
        thread::scope(|scope| {
            let over = Over(&pace);
            let start = |number: usize| {
                let (addr, pace) = (self.replicas[number % REPLICAS].addr(), &pace);
                scope.spawn(move || pace.keep(addr, number, callers, keys))
            };
            let running: Vec<_> = (0..callers).map(start).collect();
            let told = story(&pace);
            drop(over);
            let calls = running.into_iter().flat_map(|caller| caller.join().unwrap()).collect();
            (calls, told)
        })
    }

    /// How often each replica began to decide alone or stopped doing so.
    pub(super) fn mode_changes(&self) -> Vec<usize> {
        let changes = |replica: &Tidegate| {
            let log = replica.output();
            log.matches("Redis is unavailable; deciding locally").count() + log.matches("Redis answers again").count()
        };
        self.replicas.iter().map(changes).collect()
    }

    pub(super) fn wait_until_redis_decides(&self, pace: &Pace) {
        let is_shared = |replica: &Tidegate| replica.metric("redis_fallback_active").is_none_or(|active| active == 0.0);
        wait_until(LATER, "Redis to decide again", || self.replicas.iter().all(is_shared));
        // Traffic returns over a ramp, and each replica keeps to its share until it hears that all have.
        pace.pass(RETURN);
    }
}

const LATER: Duration = Duration::from_mins(1);
/// Longer than traffic takes to return to Redis.
const RETURN: Duration = Duration::from_millis(3_500);

fn setup(redis_url: &str, algorithm: Algorithm, deadline: Duration) -> Setup {
    let (name, burst) = match algorithm {
        Algorithm::SlidingLog => ("sliding_log", String::new()),
        Algorithm::TokenBucket => ("token_bucket", format!("burst = {BURST}")),
        Algorithm::Gcra => ("gcra", format!("burst = {BURST}")),
    };
    let rules = RULES.replace("LIMIT", &LIMIT.to_string()).replace("ALGORITHM", name).replace("BURST", &burst);
    Setup::serve()
        .env("REDIS_URL", redis_url)
        .env("TIDEGATE__REDIS__DEADLINE", &format!("{}ms", deadline.as_millis()))
        .env("TIDEGATE__SERVER__ROLES", "limits")
        .file("rules.toml", &rules)
        .env("TIDEGATE__LIMITS__RULES_FILE", "rules.toml")
}

/// The calls of a load: when each is due, and how many were sent.
pub(super) struct Pace {
    per_second: u32,
    began: Instant,
    sent: AtomicU64,
    is_over: AtomicBool,
}

/// Ends the load, also when the story panics.
struct Over<'a>(&'a Pace);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
    }
}

impl Pace {
    /// Returns when so much more time's calls were sent.
    pub(super) fn pass(&self, time: Duration) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
        let more = (f64::from(self.per_second) * time.as_secs_f64()) as u64;
        let enough = self.sent.load(Ordering::Acquire) + more;
        wait_until(10 * time + LATER, "the load to be offered", || self.sent.load(Ordering::Acquire) >= enough);
    }

    /// One caller. Requests are due in turn; a caller that is late sends at once until it has caught up.
    fn keep(&self, addr: SocketAddr, number: usize, callers: usize, keys: Keys) -> Vec<Checked> {
        let (mut connection, mut calls) = (connect(addr), Vec::new());
        for turn in (number..).step_by(callers) {
            let due = turn as f64 * keys.in_a_request() as f64 / f64::from(self.per_second);
            thread::sleep((self.began + Duration::from_secs_f64(due)).saturating_duration_since(Instant::now()));
            if self.is_over.load(Ordering::Acquire) {
                break;
            }
            self.sent.fetch_add(keys.in_a_request() as u64, Ordering::AcqRel);
            let answers = ask(&mut connection, &keys.of(turn));
            calls.extend(answers.into_iter().map(|call| Checked { replica: number % REPLICAS, turn, ..call }));
        }
        calls
    }
}

/// The key of one call of a load with `Keys::Own`.
pub(super) fn own_key(turn: usize) -> String {
    format!("own-{turn}")
}

pub(super) fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(LATER)).unwrap();
    stream
}

/// Checks on an open connection, in one request. Anything but an answer ends the test: callers must never see an error.
pub(super) fn ask(connection: &mut TcpStream, keys: &[String]) -> Vec<Checked> {
    let checks = keys.iter().map(|key| format!("{{\"key\":\"{key}\"}}")).collect::<Vec<_>>().join(",");
    let (path, body, start, end) = match keys {
        [_] => ("check", checks, "\r\n\r\n", "}"),
        _ => ("check-batch", format!("{{\"checks\":[{checks}]}}"), "\"results\":[", "]}"),
    };
    let head = format!("POST /v1/limits/{path} HTTP/1.1\r\nhost: localhost\r\ncontent-length:");
    let sent_us = wall_us();
    connection.write_all(format!("{head} {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
    let mut answer = Vec::with_capacity(2048);
    let mut chunk = [0; 2048];
    while !answer.ends_with(end.as_bytes()) {
        let count = connection.read(&mut chunk).unwrap();
        assert!(count > 0, "the connection was closed: {}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&chunk[..count]);
    }
    let answered_us = wall_us();
    let text = String::from_utf8_lossy(&answer);
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    let (_, results) = text.split_once(start).unwrap();
    let read = |result: &str| Checked {
        replica: 0,
        turn: 0,
        sent_us,
        answered_us,
        is_allowed: result.starts_with("true"),
        is_degraded: result.contains("\"degraded\":true"),
    };
    let answers: Vec<Checked> = results.split("\"allowed\":").skip(1).map(read).collect();
    assert_eq!(answers.len(), keys.len(), "{text}");
    answers
}
