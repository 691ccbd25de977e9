//! Limits across workers: a rate is used and not passed, and places are not passed either when a worker dies with some of them.

use std::{
    collections::BTreeSet,
    iter,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use testkit::{
    need,
    receiver::{Behaviour, Receiver},
    redis, wait_until,
};

use super::{Backend, Unavailable, assert_nothing_lost, member, send_patiently, wait_until_shared};
use crate::{
    dispatch::{LATER, say, subscribe},
    support::{Setup, Tidegate, size},
};

pub(super) fn servers() -> Result<(Backend, redis::Server), Unavailable> {
    Ok((Backend::kafka()?, redis::Server::start()?))
}

pub(super) fn worker(backend: &Backend, redis: &redis::Server) -> Setup {
    member(backend, "worker").env("REDIS_URL", &redis.url()).env("TIDEGATE__REDIS__DEADLINE", "5s")
}

pub(super) fn workers(backend: &Backend, redis: &redis::Server) -> Vec<Tidegate> {
    let workers: Vec<Tidegate> = (0..3).map(|_| worker(backend, redis).start()).collect();
    wait_until_shared(&workers.iter().collect::<Vec<_>>());
    workers
}

/// When the gate let calls of this subscription go, by Redis' own clock and in µs: the log by which it decides. It holds the
/// last second, so it is read all the while, until the receiver has `count` requests.
pub(super) fn admissions(redis: &redis::Server, subscription: &Value, receiver: &Receiver, count: usize) -> Vec<u64> {
    let name = format!("*ratelimit*{}*", subscription["id"].as_str().unwrap());
    let mut seen: BTreeSet<(u64, String)> = BTreeSet::new();
    wait_until(LATER * 3, "everything to arrive", || {
        let has_all = receiver.count() >= count;
        // A busy Redis that does not answer in time is asked again.
        let Ok(keys) = redis.try_cli(&["KEYS", &name]) else { return false };
        if let Some(key) = keys.to_string().lines().find(|key| !key.is_empty())
            && let Ok(log) = redis.try_cli(&["ZRANGE", key, "0", "-1", "WITHSCORES"])
        {
            let log = log.to_string();
            let lines: Vec<&str> = log.lines().collect();
            seen.extend(lines.chunks_exact(2).map(|entry| (entry[1].parse().unwrap(), entry[0].to_owned())));
        }
        has_all
    });
    // An entry is `sum cost ahead`; calls of one moment share one.
    let cost = |entry: &str| entry.split(' ').nth(1).unwrap().parse::<usize>().unwrap();
    seen.iter().flat_map(|(at, entry)| iter::repeat_n(*at, cost(entry))).collect()
}

/// When requests arrived, the first first.
pub(super) fn arrivals(receiver: &Receiver) -> Vec<Instant> {
    let mut arrivals: Vec<Instant> = receiver.requests().iter().map(|request| request.at).collect();
    arrivals.sort_unstable();
    arrivals
}

/// The most requests that arrived within any such time.
pub(super) fn most_within(arrivals: &[Instant], span: Duration) -> usize {
    let within = |place: usize| arrivals[place..].partition_point(|at| *at - arrivals[place] < span);
    (0..arrivals.len()).map(within).max().unwrap()
}

/// Never more than `rate` in any second.
pub(super) fn assert_kept(admitted: &[u64], rate: usize) {
    let narrowest = admitted.windows(rate + 1).map(|window| window[rate] - window[0]).min().unwrap();
    say(format_args!("{} passes at {rate}/s: {} took {narrowest} µs at least", admitted.len(), rate + 1));
    assert!(narrowest >= 1_000_000, "{} within {narrowest} µs", rate + 1);
}

#[test]
fn a_rate_is_kept_and_used_by_three_workers_together() {
    const RATE: usize = 100;
    let (backend, redis) = need!(servers());
    let receiver = Receiver::start();
    let door = member(&backend, "api").start();
    let _workers = workers(&backend, &redis);
    let subscription = subscribe(door.addr(), &receiver.url("/"), json!({"rate_limit": RATE}));
    let events = size(1000, 6000);
    send_patiently(0..events, door.addr());
    let admitted = admissions(&redis, &subscription, &receiver, events);
    assert_nothing_lost(door.addr(), &receiver, events);
    assert_kept(&admitted, RATE);

    // What a receiver sees: calls arrive a little later or earlier than those that left with them, and no more than that.
    let most = most_within(&arrivals(&receiver), Duration::from_secs(1));
    say(format_args!("at most {most} arrived in one second"));
    assert!(most <= RATE * 11 / 10, "{most} arrived in one second");

    let seconds = (events - 1) as f64 / RATE as f64;
    let took = Duration::from_micros(admitted.last().unwrap() - admitted[0]).as_secs_f64();
    let used = seconds / took;
    println!("{events} at {RATE}/s: {:.2} % used", used * 100.0);
    // Beside other tests whoever should take a slot gets no turn of the machine in time; alone it does.
    let least = size(80, 99) as f64 / 100.0;
    assert!(used >= least, "{used}");
}

#[test]
fn places_are_not_passed_when_a_worker_dies_with_some() {
    const PLACES: usize = 100;
    const CALL: Duration = Duration::from_millis(500);
    let (backend, redis) = need!(servers());
    let receiver = Receiver::start();
    receiver.set(Behaviour { delay: CALL, ..Behaviour::default() });
    let door = member(&backend, "api").start();
    let mut workers = workers(&backend, &redis);
    subscribe(door.addr(), &receiver.url("/"), json!({"max_concurrency": PLACES}));
    let events = size(1200, 12_000);
    send_patiently(0..events, door.addr());
    for kill in 1..=size(2, 10) {
        receiver.received_blocking(kill * events / size(4, 12), LATER * 3);
        let victim = workers.remove(0).kill();
        workers.push(victim.start());
    }
    let twice = assert_nothing_lost(door.addr(), &receiver, events);
    // Each call takes at least `CALL` at a receiver that does not hear of its caller's death, so what begins within less
    // than that is there at the same time.
    let most = most_within(&arrivals(&receiver), CALL * 9 / 10);
    println!("at most {} at a time, {most} were those of the dead counted; {twice} twice", receiver.most_at_a_time());
    assert!(most <= PLACES && receiver.most_at_a_time() <= PLACES, "{most}");
    assert!(most > PLACES / 2, "the places were not used: {most}");
}
