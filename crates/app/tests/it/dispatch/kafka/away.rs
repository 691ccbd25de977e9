//! Bar 3: a broker that is killed, stopped or black-holed. Callers hear 202 or 503 within a second, and never hang; what was
//! accepted arrives, and soon after it is back all is as before.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use serde_json::json;
use testkit::{need, postgres, proxy::Faults, receiver::Receiver, wait::try_wait_until, wait_until};

use super::{Own, assert_nothing_lost, event, send_patiently, wait_until_shared};
use crate::{
    dispatch::{LATER, event_id, replica, say, subscribe, wait_until_ended},
    support::{Backend, Call, Tidegate, size},
};

/// For every answer ..
const SOON: Duration = Duration::from_secs(1);
/// .. and for one while the machine stands still. Without a time-out of ours it would be minutes.
const HANGS: Duration = Duration::from_secs(10);
/// For the way from the request to the receiver, once it is back ..
const LAG: Duration = Duration::from_secs(1);
/// .. which it is within this long.
const RETURN: Duration = Duration::from_secs(15);

/// One process, one receiver, and what was posted.
struct Post {
    tidegate: Tidegate,
    receiver: Receiver,
    next: usize,
    accepted: Vec<usize>,
    slowest: Duration,
    stall: Duration,
    /// The slowest answer of each outage, by the kind of outage.
    outages: BTreeMap<&'static str, Vec<Duration>>,
}

impl Post {
    /// Posts one event. The answer is 202 or 503, and comes in time; returns its number if it was accepted.
    fn post(&mut self) -> Option<usize> {
        let number = self.next;
        self.next += 1;
        let begun = Instant::now();
        let answer = Call::post("/v1/events", event(number)).to(self.tidegate.addr());
        let took = begun.elapsed();
        self.slowest = self.slowest.max(took);
        // A machine that is too busy to answer a question about nothing is not counted against it.
        let asked = Instant::now();
        assert_eq!(Call::get("/health/live").to(self.tidegate.addr()).status, 200);
        self.stall = self.stall.max(asked.elapsed());
        assert!(took <= HANGS + self.stall, "{took:?} for {answer:?}, {:?} for nothing", self.stall);
        if answer.status == 202 {
            self.accepted.push(number);
            return Some(number);
        }
        assert!(answer.header("retry-after").is_some(), "{answer:?}");
        answer.expect_problem(503, "kafka_unavailable");
        None
    }

    /// Posts until so many are accepted.
    fn post_until_accepted(&mut self, count: usize) {
        let enough = self.accepted.len() + count;
        wait_until(LATER, "events to be accepted", || self.post().is_some() && self.accepted.len() >= enough);
    }

    /// Kafka is away: the first posts may still be accepted, or wait for their time-out; the rest are refused at once.
    fn post_in_vain(&mut self, kind: &'static str) {
        self.slowest = Duration::ZERO;
        let begun = Instant::now();
        wait_until(LATER, "an event to be refused", || self.post().is_none());
        for _ in 0..9 {
            assert_eq!(self.post(), None, "accepted while it is away");
        }
        assert_eq!(Call::get("/health/ready").to(self.tidegate.addr()).status, 503);
        // In the long form it stays away for half a minute.
        let long = Duration::from_secs(size(0, 30) as u64);
        wait_until(long * 2, "the end of the outage", || self.post().is_some() || begun.elapsed() >= long);
        self.outages.entry(kind).or_default().push(self.slowest);
    }

    /// From when it is back until an event takes no longer than usual from the request to the receiver. A broker that took long
    /// to start takes long to know its groups again.
    fn until_it_lags_no_more(&mut self, fault: &str, started_in: Duration) {
        let (back, limit) = (Instant::now(), RETURN + started_in);
        wait_until(limit, format!("the lag to be below {LAG:?} after {fault}"), || {
            let posted = Instant::now();
            let Some(number) = self.post() else { return false };
            let id = event_id(number);
            let has_arrived = || self.receiver.requests().iter().rev().any(|request| request.id() == id);
            let arrived = try_wait_until(limit, "it", || has_arrived().then(|| posted.elapsed()));
            arrived.is_ok_and(|took| took < LAG + self.stall)
        });
        assert!(back.elapsed() < limit, "{:?} after {fault}", back.elapsed());
        say(format_args!(
            "{fault}: as before {:?} after its end; the slowest answer took {:?}",
            back.elapsed(),
            self.slowest
        ));
    }

    /// In the long form each kind of outage is judged by the median of its three rounds: each round has answers that wait for the
    /// time-out, and in one of them the machine may stand still. In the short form each kind has one round, with other tests
    /// beside it, so the median of the three kinds is what can be told.
    fn assert_told_soon(&self) {
        let judged: Vec<Vec<Duration>> = match size(0, 1) {
            0 => vec![self.outages.values().flatten().copied().collect()],
            _ => self.outages.values().cloned().collect(),
        };
        for mut rounds in judged {
            rounds.sort_unstable();
            let median = rounds[rounds.len() / 2];
            assert!(median <= SOON + self.stall, "{:?}, {:?} for nothing", self.outages, self.stall);
        }
    }

    /// A refused event may have reached Kafka all the same; an accepted one must have arrived.
    fn assert_nothing_lost(&self) {
        let arrived =
            || -> BTreeSet<String> { self.receiver.requests().iter().map(|request| request.id().to_owned()).collect() };
        wait_until(LATER, "every accepted event", || {
            let arrived = arrived();
            self.accepted.iter().all(|number| arrived.contains(&event_id(*number)))
        });
        wait_until_ended(self.tidegate.addr());
    }
}

#[test]
fn a_broker_that_is_away_is_told_of_within_a_second_and_nothing_is_lost() {
    let own = need!(Own::start());
    let receiver = Receiver::start();
    // The usual time-out, not the patient one of other tests.
    let tidegate = own.replica().env("TIDEGATE__KAFKA__DELIVERY_TIMEOUT", "600ms").start();
    subscribe(tidegate.addr(), &receiver.url("/"), json!({}));
    let (slowest, stall) = (Duration::ZERO, Duration::ZERO);
    let mut post = Post { tidegate, receiver, next: 0, accepted: Vec::new(), slowest, stall, outages: BTreeMap::new() };
    post.post_until_accepted(20);
    for _ in 0..size(1, 3) {
        own.broker.stop();
        post.post_in_vain("a stop");
        own.broker.resume();
        post.until_it_lags_no_more("a stop", Duration::ZERO);

        own.proxy.set(Faults { black_hole: true, ..Faults::default() });
        post.post_in_vain("a black hole");
        own.proxy.heal();
        post.until_it_lags_no_more("a black hole", Duration::ZERO);

        own.broker.kill();
        post.post_in_vain("a kill");
        let killed = Instant::now();
        own.broker.restart();
        post.until_it_lags_no_more("a kill", killed.elapsed());
        post.post_until_accepted(20);
    }
    post.assert_nothing_lost();
    post.assert_told_soon();
    println!("{} accepted of {}", post.accepted.len(), post.next);
    let addr = post.tidegate.addr();
    wait_until(LATER, "readiness", || Call::get("/health/ready").to(addr).status == 200);
}

/// Nobody sends anything, so that only its own questions can tell.
#[test]
fn a_worker_says_that_kafka_is_gone_and_keeps_the_last_lag() {
    const EVENTS: usize = 50;
    let (own, server) = need!(Own::start().and_then(|own| Ok((own, postgres::Server::start()?))));
    let member = |roles: &str| {
        let setup = own.replica().env("TIDEGATE__SERVER__ROLES", roles);
        setup.env("DATABASE_URL", &server.url()).start()
    };
    let (door, worker) = (member("api"), member("worker"));
    wait_until_shared(&[&worker]);
    let [lag, away, held] = ["lag_records", "away", "partitions"].map(|name| format!("tidegate_kafka_{name}"));
    let is_well = || {
        let report = worker.get("/health/ready").json();
        let kafka = report["dependencies"].as_array().unwrap().iter().find(|one| one["name"] == "kafka").cloned();
        kafka.unwrap()["ok"].as_bool().unwrap()
    };
    assert_eq!((is_well(), worker.metric(&away)), (true, Some(0.0)));
    server.kill();
    send_patiently(0..EVENTS, door.addr());
    wait_until(LATER, "the lag to tell of them", || worker.metric(&lag) == Some(EVENTS as f64));
    own.broker.stop();
    wait_until(LATER, "the worker to notice a stop", || !is_well() && worker.metric(&away) == Some(1.0));
    own.broker.resume();
    wait_until(LATER, "Kafka to go on", || is_well() && worker.metric(&away) == Some(0.0));
    own.broker.kill();
    wait_until(LATER, "the worker to notice", || !is_well() && worker.metric(&away) == Some(1.0));
    wait_until(LATER, "its partitions to be lost", || worker.metric(&held) == Some(0.0));
    assert_eq!(worker.metric(&lag), Some(EVENTS as f64), "the last that is known");
    server.restart();
    own.broker.restart();
    wait_until(LATER, "Kafka to be back", || is_well() && worker.metric(&away) == Some(0.0));
    wait_until(LATER, "the lag to tell of none", || worker.metric(&lag) == Some(0.0));
}

#[test]
fn a_kafka_that_refuses_the_topic_is_quoted() {
    let backend = need!(Backend::kafka());
    // One broker cannot hold three copies.
    let tidegate = replica(&backend).env("TIDEGATE__KAFKA__REPLICATION", "3").spawn();
    wait_until(LATER, "its words", || tidegate.output().contains("InvalidReplicationFactor"));
    let output = tidegate.output();
    assert!(output.contains("refuses to make the topic") && output.contains("kafka.replication"), "{output}");
    assert!(!output.contains("does not answer"), "{output}");
}

/// It waits in Kafka behind others of its key, or not at all.
#[test]
fn the_database_takes_no_event_that_has_an_order() {
    let own = need!(Own::start());
    let setup = own.replica().env("TIDEGATE__KAFKA__WHEN_AWAY", "database");
    let tidegate = setup.env("TIDEGATE__KAFKA__DELIVERY_TIMEOUT", "800ms").start();
    own.broker.kill();
    let free = json!({"type": "a.b", "data": 1});
    let ordered = json!({"type": "a.b", "data": 1, "ordering_key": "k"});
    let answer = Call::post("/v1/events", free.clone()).to(tidegate.addr()).expect(202);
    assert_eq!(answer["queued_in"], "database");
    let refused = Call::post("/v1/events", ordered.clone()).to(tidegate.addr());
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    refused.expect_problem(503, "kafka_unavailable");
    let both = Call::post("/v1/events", json!([free, ordered])).to(tidegate.addr()).expect(202);
    assert_eq!((&both["results"][0]["queued_in"], &both["rejected"]), (&json!("database"), &json!(1)));
    assert_eq!(both["results"][1]["error"]["code"], "kafka_unavailable", "{both}");
}

#[test]
fn the_database_stands_in_for_a_kafka_that_is_away() {
    let own = need!(Own::start());
    let receiver = Receiver::start();
    let setup = own.replica().env("TIDEGATE__KAFKA__WHEN_AWAY", "database");
    let tidegate = setup.env("TIDEGATE__KAFKA__DELIVERY_TIMEOUT", "800ms").start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({}));
    let before = Call::post("/v1/events", event(0)).to(addr).expect(202);
    assert_eq!(before.get("queued_in"), None, "{before}");
    own.broker.kill();
    for number in 1..10 {
        let answer = Call::post("/v1/events", event(number)).to(addr).expect(202);
        assert_eq!(answer["queued_in"], "database", "{answer}");
    }
    let body: String = (10..20).map(|number| format!("{}\n", event(number))).collect();
    let answer = Call::new("POST", "/v1/events").body("application/x-ndjson", body).to(addr).expect(202);
    assert_eq!((&answer["accepted"], &answer["results"][0]["queued_in"]), (&json!(10), &json!("database")));
    wait_until(LATER, "their deliveries", || receiver.distinct() >= 19);
    assert_eq!(Call::get("/health/ready").to(addr).expect(200)["status"], "degraded");
    assert!(tidegate.metric("tidegate_events_queued_in_database_total") >= Some(19.0));
    own.broker.restart();
    wait_until(LATER, "events to go through Kafka again", || {
        Call::get("/health/ready").to(addr).json()["status"] == "ready"
    });
    let after = Call::post("/v1/events", event(20)).to(addr).expect(202);
    assert_eq!(after.get("queued_in"), None, "{after}");
    assert_nothing_lost(addr, &receiver, 21);
}
