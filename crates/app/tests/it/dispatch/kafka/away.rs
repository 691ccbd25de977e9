//! Bar 3: a broker that is killed, stopped or black-holed. Callers hear 202 or 503 within a second or so, and never hang;
//! what was accepted arrives, and soon after it is back all is as before.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::{need, receiver::Receiver, wait_until};

use super::{Own, assert_nothing_lost, event, metric};
use crate::{
    dispatch::{LATER, event_id, subscribe, wait_for_status},
    support::{Call, Tidegate},
};

/// `kafka.delivery_timeout`, and what a busy machine may add to it.
const SOON: Duration = Duration::from_millis(800 + 700);

/// Posts single events until one is accepted; each answer is 202 or 503 in time. Returns the numbers that were accepted.
fn post_until_accepted(tidegate: &Tidegate, next: &mut usize, least: usize) -> Vec<usize> {
    let mut accepted = Vec::new();
    let mut asked = 0;
    wait_until(LATER, "an event to be accepted", || {
        let number = *next;
        *next += 1;
        asked += 1;
        let begun = Instant::now();
        let answer = Call::post("/v1/events", event(number)).to(tidegate.addr());
        assert!(begun.elapsed() < SOON, "{:?} for {answer:?}", begun.elapsed());
        if answer.status == 202 {
            accepted.push(number);
        } else {
            assert!(answer.header("retry-after").is_some(), "{answer:?}");
            answer.expect_problem(503, "kafka_unavailable");
        }
        asked >= least && !accepted.is_empty()
    });
    accepted
}

#[test]
fn a_broker_that_is_away_is_told_of_at_once_and_nothing_is_lost() {
    let own = need!(Own::start());
    let receiver = Receiver::start();
    let tidegate = own.replica().env("TIDEGATE__KAFKA__DELIVERY_TIMEOUT", "800ms").start();
    subscribe(tidegate.addr(), &receiver.url("/"), json!({}));
    let mut next = 0;
    let mut accepted = post_until_accepted(&tidegate, &mut next, 20);

    own.broker.stop();
    let refused = refused_soon(&tidegate, &mut next, &mut accepted);
    assert_eq!(Call::get("/health/ready").to(tidegate.addr()).status, 503);
    own.broker.resume();
    accepted.extend(post_until_accepted(&tidegate, &mut next, 20));

    own.broker.kill();
    let refused = refused + refused_soon(&tidegate, &mut next, &mut accepted);
    own.broker.restart();
    let back = Instant::now();
    accepted.extend(post_until_accepted(&tidegate, &mut next, 20));
    let last = *accepted.last().unwrap();
    receiver.received_blocking(accepted.len(), LATER);
    wait_for_status(tidegate.addr(), &event_id(last), "delivered");
    println!("{} accepted, {refused} refused; delivering {:?} after the return", accepted.len(), back.elapsed());
    assert!(back.elapsed() < Duration::from_secs(20), "{:?}", back.elapsed());
    // A refused event may have reached Kafka all the same; an accepted one must have.
    let arrived: std::collections::BTreeSet<String> =
        receiver.requests().iter().map(|request| request.id().to_owned()).collect();
    for number in accepted {
        assert!(arrived.contains(&event_id(number)), "{number} is lost");
    }
    wait_until(LATER, "readiness", || Call::get("/health/ready").to(tidegate.addr()).status == 200);
}

/// Ten posts to a Kafka that is away. The first ones may still be accepted, or wait for their time-out.
fn refused_soon(tidegate: &Tidegate, next: &mut usize, accepted: &mut Vec<usize>) -> usize {
    let mut refused = 0;
    for _ in 0..10 {
        let number = *next;
        *next += 1;
        let begun = Instant::now();
        let answer = Call::post("/v1/events", event(number)).to(tidegate.addr());
        assert!(begun.elapsed() < SOON, "{:?} for {answer:?}", begun.elapsed());
        match answer.status {
            202 => accepted.push(number),
            _ => {
                answer.expect_problem(503, "kafka_unavailable");
                refused += 1;
            }
        }
    }
    assert!(refused >= 8, "only {refused} of 10 were refused");
    refused
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
    assert!(metric(&tidegate, "tidegate_events_queued_in_database_total") >= 19.0);
    own.broker.restart();
    wait_until(LATER, "events to go through Kafka again", || {
        Call::get("/health/ready").to(addr).json()["status"] == "ready"
    });
    let after = Call::post("/v1/events", event(20)).to(addr).expect(202);
    assert_eq!(after.get("queued_in"), None, "{after}");
    assert_nothing_lost(addr, &receiver, 21);
}
