//! What follows an attempt: again after its wait, later if the receiver asks, given up, or put off without an attempt.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::{
    receiver::{Answer, Behaviour, Receiver},
    wait_until,
};

use super::{LATER, attempts, deliveries, replica, send, send_all, subscribe, wait_for_status, wait_until_ended};
use crate::support::{Backend, Call, each_queue};

each_queue! {
    a_failure_is_repeated_with_the_same_id_and_body
    a_deferral_spends_no_attempt
}

fn a_failure_is_repeated_with_the_same_id_and_body(backend: &Backend) {
    let receiver = Receiver::start();
    receiver.set(Behaviour { fail_first: 1, ..Behaviour::default() });
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({"retry_schedule": ["100ms", "1h"]}));
    send(addr, json!({"id": "twice", "type": "a.b", "data": {"text": "ä \u{1f30a}"}}));
    let delivery = wait_for_status(addr, "twice", "delivered");
    let requests = receiver.requests();
    assert_eq!((requests[0].id(), requests[1].id(), requests.len()), ("twice", "twice", 2));
    assert_eq!(requests[0].body, requests[1].body);
    assert!(requests[1].at - requests[0].at >= Duration::from_millis(100));
    assert_eq!((&delivery["attempts"], &delivery["next_attempt_at"]), (&json!(2), &json!(null)));
    let attempts = attempts(addr, &delivery);
    assert_eq!((&attempts[0]["number"], &attempts[0]["response_status"]), (&json!(2), &json!(200)));
    assert_eq!((&attempts[0]["error"], &attempts[1]["response_status"]), (&json!(null), &json!(500)));
    assert_eq!(attempts[1]["error"], json!({"class": "server_error", "sentence": "the receiver answered 500"}));
}

/// Bar 16, short form: a limit puts 30 events off, and spends no attempt of any.
fn a_deferral_spends_no_attempt(backend: &Backend) {
    const EVENTS: usize = 30;
    const LIMIT: usize = 5;
    let receiver = Receiver::start();
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({"rate_limit": LIMIT}));
    let begun = Instant::now();
    send_all(addr, (0..EVENTS).map(|number| json!({"id": format!("e{number}"), "type": "a.b", "data": {}})));
    wait_until(LATER, "the lag of what is put off", || tidegate.metric("tidegate_delivery_lag_seconds") > Some(1.0));
    receiver.received_blocking(EVENTS, LATER);
    let took = begun.elapsed();
    wait_until_ended(addr);
    let all = deliveries(addr, "");
    assert_eq!(all.len(), EVENTS);
    assert!(all.iter().all(|one| one["status"] == "delivered" && one["attempts"] == 1), "{all:?}");
    let arrivals: Vec<Instant> = receiver.requests().iter().map(|request| request.at).collect();
    assert_eq!(arrivals.len(), EVENTS);
    assert!(took < Duration::from_secs(20), "{EVENTS} at {LIMIT}/s took {took:?}");
    // A call may be late by its way to the receiver, so two of them may come close together; but none comes before the
    // limit lets it, and that is after as many seconds as there were limits before it.
    for (number, arrival) in arrivals.iter().enumerate() {
        let earliest = Duration::from_millis(950) * u32::try_from(number / LIMIT).unwrap();
        assert!(*arrival - begun >= earliest, "{} at {LIMIT}/s after {:?}", number + 1, *arrival - begun);
    }
}

#[test]
fn a_receiver_that_asks_for_time_gets_it() {
    let receiver = Receiver::start();
    let busy = Answer::RetryAfter { status: 429, value: "2".to_owned() };
    receiver.set(Behaviour { fail_first: 1, failure: busy, ..Behaviour::default() });
    let tidegate = replica(&Backend::Sqlite).start();
    subscribe(tidegate.addr(), &receiver.url("/"), json!({"retry_schedule": ["10ms"]}));
    send(tidegate.addr(), json!({"id": "later", "type": "a.b", "data": {}}));
    let delivery = wait_for_status(tidegate.addr(), "later", "delivered");
    let requests = receiver.requests();
    let waited = requests[1].at - requests[0].at;
    assert!(waited >= Duration::from_secs(2) && waited < Duration::from_secs(15), "{waited:?}");
    assert_eq!(attempts(tidegate.addr(), &delivery)[1]["error"]["class"], "too_many_requests");
}

#[test]
fn every_header_of_an_answer_is_kept_also_those_that_come_twice() {
    let receiver = Receiver::start();
    let headers = [("set-cookie", "a=1"), ("x-other", "b"), ("set-cookie", "c=2")];
    let headers = headers.map(|(name, value)| (name, value.to_owned())).into();
    receiver.set(Answer::Full { status: 200, headers, body: Vec::new() });
    let tidegate = replica(&Backend::Sqlite).start();
    subscribe(tidegate.addr(), &receiver.url("/"), json!({}));
    send(tidegate.addr(), json!({"id": "once", "type": "a.b", "data": {}}));
    let delivery = wait_for_status(tidegate.addr(), "once", "delivered");
    let kept = &attempts(tidegate.addr(), &delivery)[0]["response_headers"];
    assert_eq!((&kept["set-cookie"], &kept["x-other"]), (&json!("a=1, c=2"), &json!("b")), "{kept}");
}

#[test]
fn a_receiver_that_is_gone_gets_no_more() {
    let receiver = Receiver::start();
    receiver.set(Answer::Status(410));
    let tidegate = replica(&Backend::Sqlite).start();
    let addr = tidegate.addr();
    let gone = subscribe(addr, &receiver.url("/"), json!({"retry_schedule": ["10ms"]}));
    send(addr, json!({"id": "last", "type": "a.b", "data": {}}));
    let delivery = wait_for_status(addr, "last", "failed");
    assert!(delivery["last_error"].as_str().unwrap().contains("410"), "{delivery}");
    let path = format!("/v1/subscriptions/{}", gone["id"].as_str().unwrap());
    let now = Call::get(&path).to(addr).expect(200);
    assert_eq!((&now["enabled"], &now["disabled_reason"]), (&json!(false), &json!("the receiver answered 410 (gone)")));
    send(addr, json!({"id": "unwanted", "type": "a.b", "data": {}}));
    assert_eq!(Call::get("/v1/events/unwanted").to(addr).expect(200)["status"], "unmatched");
    assert_eq!(receiver.count(), 1);
}

#[test]
fn whatever_is_no_success_is_a_failure_with_a_class_and_a_sentence() {
    let receiver = Receiver::start();
    let elsewhere = Receiver::start();
    let moved =
        Answer::Full { status: 302, headers: vec![("location", elsewhere.url("/"))], body: b"over there".to_vec() };
    receiver.set_path("/redirect", moved);
    receiver.set_path("/client_error", Answer::Status(404));
    receiver.set_path("/server_error", Answer::Status(503));
    receiver.set_path("/timeout", Answer::Hang);
    let tidegate = replica(&Backend::Sqlite).start();
    let addr = tidegate.addr();
    for class in ["redirect", "client_error", "server_error", "timeout"] {
        let settings = json!({"event_types": [class], "retry_schedule": [], "timeout": "500ms"});
        subscribe(addr, &receiver.url(&format!("/{class}")), settings);
        send(addr, json!({"id": class, "type": class, "data": {}}));
        let delivery = wait_for_status(addr, class, "failed");
        let attempts = attempts(addr, &delivery);
        assert_eq!((attempts.len(), &attempts[0]["error"]["class"]), (1, &json!(class)), "{attempts:?}");
        assert!(attempts[0]["error"]["sentence"].as_str().unwrap().len() > 10, "{attempts:?}");
        assert!(delivery["last_error"].as_str().unwrap().starts_with("the only attempt failed"), "{delivery}");
    }
    assert_eq!((receiver.count(), elsewhere.count()), (4, 0));
}
