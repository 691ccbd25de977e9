//! Bar 21: a long time at a steady rate. Memory, files and threads stay what they were, deliveries stay as quick, dead rows
//! are cleared away, and nothing is lost. `SOAK` says how many minutes the long form takes.

use std::{
    fmt, fs,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use testkit::{receiver::Receiver, wait_until};

use super::{LATER, replica, say, send_until_accepted, size_of_wait, statuses, subscribe, wait_until_all_ended};
use crate::support::{Backend, SOON, Tidegate, each_backend, size};

each_backend! {
    it_stays_as_it_was
}

const TICK: Duration = Duration::from_millis(100);
/// Each is compared to the first.
const PARTS: usize = 6;
const SAMPLES: usize = 10 * PARTS;
/// Calls at a time, and so connections.
const IN_FLIGHT: usize = 100;
/// Files and threads that are opened when they are first needed: connections to the database, readers of SQLite's.
const LATECOMERS: usize = 32;
/// Comes and goes: what SQLite's lists are filled with once a minute, what the allocator keeps.
const BREATH_KIB: usize = 4096;
/// Nobody's fault on a machine that does something else besides.
const MOMENT: Duration = Duration::from_millis(5);
/// PostgreSQL clears away a table's dead rows once a minute, when they are more than a fifth of it.
const DEAD_ROWS: usize = 5000;

fn length() -> Duration {
    let minutes = std::env::var("SOAK").ok().and_then(|minutes| minutes.parse().ok());
    minutes.map_or(Duration::from_secs(6), Duration::from_mins)
}

/// Of each tick. In the long form they are a million in an hour.
fn events() -> usize {
    size(10, 30)
}

/// As fast as can be: enough to fill every cache, in the long form.
fn first_events() -> usize {
    size(1000, 100_000)
}

/// What the process holds at a moment.
struct Sample {
    resident_kib: usize,
    files: usize,
    threads: usize,
    dead_rows: usize,
}

impl Sample {
    fn take(tidegate: &Tidegate, backend: &Backend) -> Self {
        let process = format!("/proc/{}", tidegate.pid());
        let status = fs::read_to_string(format!("{process}/status")).unwrap();
        let number = |name: &str| -> usize {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        Sample {
            resident_kib: number("VmRSS:"),
            files: fs::read_dir(format!("{process}/fd")).unwrap().count(),
            threads: number("Threads:"),
            dead_rows: dead_rows(backend),
        }
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sample { resident_kib, files, threads, dead_rows } = self;
        write!(out, "{resident_kib:>7} KiB, {files:>3} files, {threads:>2} threads, {dead_rows:>4} dead rows")
    }
}

fn dead_rows(backend: &Backend) -> usize {
    let Backend::Postgres(postgres) = backend else { return 0 };
    let rows = postgres.sql("SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables");
    rows[0][0].as_ref().unwrap().parse().unwrap()
}

/// How often each event arrived, and how long after it was due to be sent.
struct Arrived {
    begun: Instant,
    times: Vec<u8>,
    /// Between one sample and the next.
    latencies: Vec<Duration>,
}

impl Arrived {
    fn add(&mut self, receiver: &Receiver) {
        for request in receiver.take() {
            let number: usize = request.id()[1..].parse().unwrap();
            self.times.resize(self.times.len().max(number + 1), 0);
            self.times[number] += 1;
            if let Some(number) = number.checked_sub(first_events()) {
                let due = self.begun + TICK * u32::try_from(number / events()).unwrap();
                self.latencies.push(request.at.saturating_duration_since(due));
            }
        }
    }

    /// Of those since it was last asked.
    fn p99(&mut self) -> Duration {
        self.latencies.sort_unstable();
        let p99 = self.latencies.get(self.latencies.len() * 99 / 100).copied().unwrap_or_default();
        self.latencies.clear();
        p99
    }
}

fn send_at_once(addr: SocketAddr) {
    let batch = 100;
    thread::scope(|scope| {
        for producer in 0..2 {
            scope.spawn(move || {
                for start in (producer * batch..first_events()).step_by(2 * batch) {
                    send_until_accepted(start..start + batch, || addr);
                }
            });
        }
    });
}

/// However long the answers take. Returns how many were sent in all.
fn send_steadily(addr: SocketAddr, begun: Instant) -> usize {
    let ticks = usize::try_from(length().as_millis() / TICK.as_millis()).unwrap();
    for tick in 0..ticks {
        let due = TICK * u32::try_from(tick).unwrap();
        wait_until(LATER, "the next tick", || begun.elapsed() >= due);
        let start = first_events() + tick * events();
        send_until_accepted(start..start + events(), || addr);
    }
    first_events() + ticks * events()
}

fn median<T: Ord + Copy>(values: impl Iterator<Item = T>) -> T {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable();
    values[values.len() / 2]
}

/// Growth is told from what comes and goes by what is usual in each part.
fn assert_steady(samples: &[(Sample, Duration)], before: &Sample) {
    let parts: Vec<&[(Sample, Duration)]> = samples.chunks(samples.len().div_ceil(PARTS)).collect();
    let resident = |part: &[(Sample, Duration)]| median(part.iter().map(|(sample, _)| sample.resident_kib));
    let p99 = |part: &[(Sample, Duration)]| median(part.iter().map(|(_, p99)| *p99));
    let (memory, latency): (Vec<usize>, Vec<Duration>) = parts.iter().map(|part| (resident(part), p99(part))).unzip();
    say(format_args!("of each part: {memory:?} KiB, p99 {latency:?}"));
    // A MiB in ten minutes.
    let may_grow = BREATH_KIB + 1024 * usize::try_from(length().as_secs()).unwrap() / 600;
    assert!(memory[1..].iter().all(|kib| *kib <= memory[0] + may_grow), "{memory:?}");
    // A busy disk has its moments; what becomes slower stays slow.
    let later = median(latency[1..].iter().copied());
    assert!(later <= (latency[0] * 6 / 5).max(latency[0] + MOMENT), "{latency:?}");
    for (sample, _) in samples {
        assert!(sample.files <= before.files + IN_FLIGHT + LATECOMERS, "{sample}");
        assert!(sample.threads <= before.threads + LATECOMERS, "{sample}");
        assert!(sample.dead_rows <= DEAD_ROWS, "{sample}");
    }
}

fn it_stays_as_it_was(backend: &Backend) {
    let receiver = Receiver::start();
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({"max_concurrency": IN_FLIGHT}));
    let before = Sample::take(&tidegate, backend);
    send_at_once(addr);
    wait_until(size_of_wait(), "the first events", || receiver.count() >= first_events());
    wait_until(LATER * 2, "dead rows to be cleared away", || dead_rows(backend) <= DEAD_ROWS);

    let begun = Instant::now();
    let mut arrived = Arrived { begun, times: Vec::new(), latencies: Vec::new() };
    let mut samples = Vec::new();
    let sent = thread::scope(|scope| {
        let sending = scope.spawn(|| send_steadily(addr, begun));
        for nth in 1..=u32::try_from(SAMPLES).unwrap() {
            let next = length() * nth / u32::try_from(SAMPLES).unwrap();
            wait_until(LATER * 2, "the next sample", || begun.elapsed() >= next);
            arrived.add(&receiver);
            let (sample, p99) = (Sample::take(&tidegate, backend), arrived.p99());
            say(format_args!("{:>4} s: {sample}, p99 {p99:?}, {} arrived", next.as_secs(), arrived.times.len()));
            samples.push((sample, p99));
        }
        sending.join().unwrap()
    });
    wait_until_all_ended(addr, sent);
    assert_eq!(statuses(addr), [("delivered".to_owned(), sent)].into());
    arrived.add(&receiver);
    let lost = sent - arrived.times.iter().filter(|times| **times > 0).count();
    let twice = arrived.times.iter().filter(|times| **times > 1).count();
    assert_eq!(lost, 0, "of {sent}");
    wait_until(SOON, "files and threads to come back", || {
        let now = Sample::take(&tidegate, backend);
        now.files <= before.files + LATECOMERS && now.threads <= before.threads + LATECOMERS
    });
    for gauge in ["tidegate_deliveries_in_flight", "tidegate_deliveries_waiting"] {
        wait_until(SOON, gauge, || tidegate.metric(gauge) == Some(0.0));
    }
    say(format_args!("{sent} events, {lost} lost, {twice} twice; {before}, then {}", Sample::take(&tidegate, backend)));
    if size(0, 1) > 0 {
        assert_steady(&samples, &before);
    }
    tidegate.stop().succeeded();
}
