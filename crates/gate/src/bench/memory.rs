//! GCRA in this process against `governor`'s keyed limiter: same keys, same threads, same run.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use super::rounds::{Turn, best, over_under, spin};
use super::{Options, Row};
use crate::limiter::{Algorithm, Memory, Policy};
use crate::{Clock, Key};

/// Few enough for the processor's cache, and more than it holds.
const KEYS: [usize; 2] = [10_000, 100_000];
const PER_SECOND: u32 = 1_000_000;
const HOT_PER_SECOND: u32 = 1_000;

pub(super) fn measure(options: &Options) -> Vec<Row> {
    let mut rows = Vec::new();
    for count in KEYS {
        for threads in [1, 2] {
            rows.extend(against_governor(options, count, threads));
        }
    }
    rows.push(hot_key(options));
    rows.push(bytes_per_key(options));
    rows
}

fn policy(per_second: u32) -> Policy {
    Policy::new(Algorithm::Gcra, u64::from(per_second), Duration::from_secs(1)).expect("a plain limit is valid")
}

fn keys(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|n| format!("tenant-{}:user-{n}", n % 97))
}

fn against_governor(options: &Options, count: usize, threads: usize) -> [Row; 2] {
    let names: Arc<Vec<String>> = Arc::new(keys(count).collect());
    let ours: Arc<Vec<Key>> = Arc::new(names.iter().map(|name| Key::new(name).expect("a short key")).collect());
    let gcra = Memory::new(count * 2, Clock::System);
    let quota = Quota::per_second(NonZeroU32::new(PER_SECOND).unwrap_or(NonZeroU32::MIN));
    let peer: Arc<DefaultKeyedRateLimiter<String>> = Arc::new(RateLimiter::keyed(quota));
    let (mut our_turns, mut peer_turns) = (Vec::new(), Vec::new());
    // Short turns find the moments in which nothing else ran; both sides get as many.
    let turn = options.turn / 5;
    for _ in 0..options.turns * 3 {
        our_turns.push(on_threads(
            threads,
            || {
                let (gcra, ours, policy) = (gcra.clone(), ours.clone(), policy(PER_SECOND));
                move |n| gcra.check(&ours[scatter(n, count)], &policy, 1).is_allowed()
            },
            turn,
        ));
        peer_turns.push(on_threads(
            threads,
            || {
                let (peer, names) = (peer.clone(), names.clone());
                move |n| peer.check_key(&names[scatter(n, count)]).is_ok()
            },
            turn,
        ));
    }
    let (ours, theirs) = (best(our_turns), best(peer_turns));
    let times = ours.per_second() / theirs.per_second();
    let name = |who: &str| format!("{who}, {count} keys, {threads} thread{}", if threads == 1 { "" } else { "s" });
    let row = |who: &str, turn: &Turn, against| Row {
        what: name(who),
        figure: turn.per_second(),
        unit: "/s",
        against,
        p50: turn.quantile(0.5),
        p99: turn.quantile(0.99),
        over_under: Some((0.0, 100.0 * (turn.operations - turn.admitted) as f64 / turn.operations as f64)),
    };
    let governor = row("governor in memory", &theirs, None);
    let against = Some((name("governor"), times));
    [governor, row("gate GCRA in memory", &ours, against)]
}

/// A different order on every thread and turn would only add noise: all walk the keys in the same scattered way.
fn scatter(n: u64, count: usize) -> usize {
    usize::try_from(n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32).unwrap_or(0) % count
}

fn on_threads<O>(threads: usize, make: impl Fn() -> O, time: Duration) -> Turn
where
    O: FnMut(u64) -> bool + Send,
{
    let start_us = Clock::System.now_us();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                let operation = make();
                scope.spawn(move || spin(time, operation))
            })
            .collect();
        let turns = workers.into_iter().map(|worker| worker.join().unwrap_or_default());
        let turn = turns.reduce(Turn::join).unwrap_or_default();
        Turn { elapsed_us: Clock::System.now_us() - start_us, ..turn }
    })
}

/// One key, far above its limit: what passes is what the limit says.
fn hot_key(options: &Options) -> Row {
    let gcra = Memory::new(16, Clock::System);
    let (key, policy) = (Key::new("hot").expect("a short key"), policy(HOT_PER_SECOND));
    let time = options.turn.max(Duration::from_secs(2));
    let turn = on_threads(
        2,
        || {
            let (gcra, key) = (gcra.clone(), key.clone());
            move |_| gcra.check(&key, &policy, 1).is_allowed()
        },
        time,
    );
    let owed = f64::from(HOT_PER_SECOND) * turn.elapsed_us as f64 / 1e6;
    Row {
        what: "gate GCRA in memory, one hot key, 2 threads".to_owned(),
        figure: turn.per_second(),
        unit: "/s",
        p50: turn.quantile(0.5),
        p99: turn.quantile(0.99),
        over_under: Some(over_under(turn.admitted, owed + f64::from(HOT_PER_SECOND), owed)),
        ..Row::default()
    }
}

/// Resident memory that many idle keys take, beside the text of the keys themselves.
fn bytes_per_key(options: &Options) -> Row {
    let gcra = Memory::new(options.many_keys * 2, Clock::System);
    let day = Policy::new(Algorithm::Gcra, 10, Duration::from_secs(86_400)).expect("a plain limit is valid");
    let before = resident_bytes();
    let mut text_bytes = 0;
    for name in keys(options.many_keys) {
        text_bytes += name.len();
        let key = Key::new(&name).expect("a short key");
        gcra.check(&key, &day, 1);
    }
    let taken = resident_bytes().saturating_sub(before).saturating_sub(text_bytes);
    Row {
        what: format!("gate GCRA in memory, {} idle keys", gcra.len()),
        figure: taken as f64 / gcra.len().max(1) as f64,
        unit: "bytes per key beside the key",
        ..Row::default()
    }
}

fn resident_bytes() -> usize {
    const PAGE: usize = 4_096;
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * PAGE
}
