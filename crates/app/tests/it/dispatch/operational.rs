//! Operational events: told once, to those who name them, and never about themselves.

use serde_json::{Value, json};
use testkit::{
    need,
    receiver::{Answer, Behaviour, Receiver, Request},
    wait_until,
};

use super::{LATER, replica, send, subscribe, wait_for_status, wait_for_subscriptions, wait_until_ended};
use crate::support::{Backend, Call, each_backend};

each_backend! {
    a_failure_is_told_to_those_who_name_it_and_feeds_nothing
    a_subscription_that_is_disabled_or_enabled_is_told_of
    a_circuit_that_opens_and_closes_is_told_of_once
    a_circuit_that_a_new_url_closes_is_told_of
}

/// What arrived at this path, as JSON.
fn told(receiver: &Receiver, path: &str) -> Vec<Value> {
    let here = |request: &Request| request.path == path;
    let requests = receiver.requests();
    requests
        .iter()
        .filter(|request| here(request))
        .map(|request| serde_json::from_slice(&request.body).unwrap())
        .collect()
}

fn types(receiver: &Receiver, path: &str) -> Vec<String> {
    told(receiver, path).iter().map(|body| body["type"].as_str().unwrap().to_owned()).collect()
}

fn a_failure_is_told_to_those_who_name_it_and_feeds_nothing(backend: &Backend) {
    let receiver = Receiver::start();
    receiver.set_path("/bad", Answer::Status(500));
    receiver.set_path("/broken", Answer::Status(500));
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    let once = json!({"event_types": ["order.*"], "retry_schedule": []});
    let bad = subscribe(addr, &receiver.url("/bad"), once);
    subscribe(addr, &receiver.url("/all"), json!({"event_types": ["**"]}));
    subscribe(addr, &receiver.url("/any"), json!({"event_types": ["*.failed"]}));
    subscribe(addr, &receiver.url("/named"), json!({"event_types": ["delivery.*"]}));
    let filtered = json!({"event_types": ["delivery.failed"], "filter": {"data.event_type": "invoice.paid"}});
    subscribe(addr, &receiver.url("/filtered"), filtered);
    // This one names them, and fails itself: nothing may follow from that.
    subscribe(addr, &receiver.url("/broken"), json!({"event_types": ["delivery.failed"], "retry_schedule": []}));
    let explained = json!({"type": "delivery.failed", "data": {}, "source": "tidegate"});
    let explained = Call::post("/v1/events/explain", explained).to(addr).expect(200);
    let would = explained.as_array().unwrap().iter().filter(|one| one["would_receive"] == true).count();
    assert_eq!(would, 2, "{explained}");

    send(addr, json!({"id": "doomed", "type": "order.created", "data": {}}));
    wait_until(LATER, "it to be told", || {
        told(&receiver, "/named").len() == 1 && told(&receiver, "/broken").len() == 1
    });
    wait_until_ended(addr);
    let body = &told(&receiver, "/named")[0];
    assert_eq!((&body["type"], &body["data"]["event_id"]), (&json!("delivery.failed"), &json!("doomed")), "{body}");
    assert_eq!((&body["data"]["subscription_id"], &body["data"]["event_type"]), (&bad["id"], &json!("order.created")));
    assert_eq!(body["source"], "tidegate", "nobody else's event has it");
    assert_eq!(types(&receiver, "/all"), ["order.created"], "who takes everything did not ask for it");
    assert_eq!((told(&receiver, "/any").len(), told(&receiver, "/filtered").len()), (0, 0));
    let events = Call::get("/v1/events?type=delivery.failed").to(addr).expect(200);
    let events = events["data"].as_array().unwrap();
    assert_eq!((events.len(), &events[0]["source"]), (1, &json!("tidegate")), "one failure, one event");
    let faked = json!({"type": "delivery.failed", "data": {}, "source": "tidegate"});
    let problem = Call::post("/v1/events", faked).to(addr).expect_problem(422, "invalid_field");
    assert_eq!(problem["field"], "source");
}

fn a_subscription_that_is_disabled_or_enabled_is_told_of(backend: &Backend) {
    let receiver = Receiver::start();
    receiver.set_path("/gone", Answer::Status(410));
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    let gone = subscribe(addr, &receiver.url("/gone"), json!({"event_types": ["order.*", "subscription.*"]}));
    subscribe(addr, &receiver.url("/named"), json!({"event_types": ["subscription.*"]}));
    send(addr, json!({"id": "last", "type": "order.created", "data": {}}));
    wait_until(LATER, "the end to be told", || told(&receiver, "/named").len() == 1);
    let body = &told(&receiver, "/named")[0];
    assert_eq!((&body["type"], &body["data"]["subscription_id"]), (&json!("subscription.disabled"), &gone["id"]));
    receiver.set_path("/gone", Behaviour::default());
    let path = format!("/v1/subscriptions/{}", gone["id"].as_str().unwrap());
    Call::new("POST", &format!("{path}/resume")).to(addr).expect(200);
    wait_until(LATER, "the beginning to be told", || told(&receiver, "/named").len() == 2);
    Call::new("POST", &format!("{path}/pause")).to(addr).expect(200);
    Call::new("POST", &format!("{path}/resume")).to(addr).expect(200);
    send(addr, json!({"id": "again", "type": "order.created", "data": {}}));
    wait_for_status(addr, "again", "delivered");
    assert_eq!(types(&receiver, "/named"), ["subscription.disabled", "subscription.enabled"], "pausing is no news");
}

fn a_circuit_that_opens_and_closes_is_told_of_once(backend: &Backend) {
    let receiver = Receiver::start();
    receiver.set_path("/bad", Answer::Status(500));
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/bad"), json!({"event_types": ["order.*"], "retry_schedule": ["1s", "1s", "1s"]}));
    subscribe(addr, &receiver.url("/named"), json!({"event_types": ["circuit.*"]}));
    for number in 0..12 {
        send(addr, json!({"id": format!("e{number}"), "type": "order.created", "data": {}}));
    }
    wait_until(LATER, "the circuit to open", || told(&receiver, "/named").len() == 1);
    let body = &told(&receiver, "/named")[0];
    assert_eq!((&body["type"], &body["data"]["reason"]), (&json!("circuit.opened"), &json!("consecutive_failures")));
    wait_until(LATER, "the gauge", || tidegate.metric("tidegate_circuits{state=\"open\"}") == Some(1.0));
    receiver.set_path("/bad", Behaviour::default());
    wait_until(LATER, "the circuit to close", || told(&receiver, "/named").len() == 2);
    wait_until_ended(addr);
    assert_eq!(types(&receiver, "/named"), ["circuit.opened", "circuit.closed"]);
}

/// The circuit was closed and the gauge said it was open, until something else was sent.
fn a_circuit_that_a_new_url_closes_is_told_of(backend: &Backend) {
    let receiver = Receiver::start();
    receiver.set_path("/bad", Answer::Status(500));
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    let bad = json!({"event_types": ["order.*"], "retry_schedule": ["1h"]});
    let bad = subscribe(addr, &receiver.url("/bad"), bad);
    subscribe(addr, &receiver.url("/named"), json!({"event_types": ["circuit.*"]}));
    for _ in 0..6 {
        send(addr, json!({"type": "order.created", "data": {}}));
    }
    wait_until(LATER, "the circuit to open", || told(&receiver, "/named").len() == 1);
    wait_until(LATER, "the gauge", || tidegate.metric("tidegate_circuits{state=\"open\"}") == Some(1.0));
    let path = format!("/v1/subscriptions/{}", bad["id"].as_str().unwrap());
    let patch = |url: &str| Call::new("PATCH", &path).json(json!({"url": receiver.url(url)})).to(addr).expect(200);
    patch("/good");
    wait_until(LATER, "the circuit to be closed", || {
        types(&receiver, "/named") == ["circuit.opened", "circuit.closed"]
    });
    wait_until(LATER, "the gauge", || tidegate.metric("tidegate_circuits{state=\"open\"}") == Some(0.0));
    patch("/better");
    let closings = Call::get("/v1/events?type=circuit.closed").to(addr).expect(200);
    assert_eq!(closings["data"].as_array().unwrap().len(), 1, "nothing was open any more");
}

/// Each of two replicas has a circuit of its own where there is no Redis; the opening is told once all the same.
#[test]
fn two_replicas_tell_of_one_opening() {
    let backend = Backend::Postgres(need!(testkit::postgres()));
    let receiver = Receiver::start();
    receiver.set_path("/bad", Answer::Status(500));
    let fleet = [replica(&backend).start(), replica(&backend).start()];
    let bad = json!({"event_types": ["order.*"], "retry_schedule": ["1h"]});
    subscribe(fleet[0].addr(), &receiver.url("/bad"), bad);
    subscribe(fleet[0].addr(), &receiver.url("/named"), json!({"event_types": ["circuit.*"]}));
    for tidegate in &fleet {
        wait_for_subscriptions(tidegate.addr(), 2);
        for _ in 0..10 {
            send(tidegate.addr(), json!({"type": "order.created", "data": {}}));
        }
    }
    for tidegate in &fleet {
        wait_until(LATER, "its circuit to open", || {
            tidegate.metric("tidegate_gate_refusals_total{by=\"circuit\"}").is_some()
        });
    }
    wait_until(LATER, "it to be told", || !told(&receiver, "/named").is_empty());
    let events = Call::get("/v1/events?type=circuit.opened").to(fleet[1].addr()).expect(200);
    assert_eq!(events["data"].as_array().unwrap().len(), 1, "{events}");
}

/// Their circuits are not shared: what goes well by one of them says nothing about the other's.
#[test]
fn a_success_of_another_replica_does_not_close_a_circuit_that_has_just_opened() {
    let backend = Backend::Postgres(need!(testkit::postgres()));
    let receiver = Receiver::start();
    receiver.set_path("/bad", Answer::Status(500));
    let fleet = [replica(&backend).start(), replica(&backend).start()];
    let [one, other] = [fleet[0].addr(), fleet[1].addr()];
    subscribe(one, &receiver.url("/bad"), json!({"event_types": ["order.*"], "retry_schedule": ["1h"]}));
    subscribe(one, &receiver.url("/named"), json!({"event_types": ["circuit.*"]}));
    wait_for_subscriptions(other, 2);
    for _ in 0..10 {
        send(one, json!({"type": "order.created", "data": {}}));
    }
    wait_until(LATER, "the circuit to open", || !told(&receiver, "/named").is_empty());
    wait_until(LATER, "the other to know", || fleet[1].metric("tidegate_circuits{state=\"open\"}") == Some(1.0));
    receiver.set_path("/bad", Behaviour::default());
    for id in ["a", "b", "c"] {
        send(other, json!({"id": id, "type": "order.created", "data": {}}));
        wait_for_status(other, id, "delivered");
    }
    let closings = Call::get("/v1/events?type=circuit.closed").to(other).expect(200);
    assert_eq!(closings["data"], json!([]));
}

/// With Redis the circuit is one for the fleet. Whoever notices its changes, each is told once.
#[test]
fn a_fleet_with_redis_tells_of_one_opening_and_one_closing() {
    let backend = Backend::Postgres(need!(testkit::postgres()));
    let redis = need!(testkit::redis());
    let receiver = Receiver::start();
    receiver.set_path("/bad", Answer::Status(500));
    // What a replica decided alone because this machine is busy would be a circuit of its own.
    let setup = || replica(&backend).env("REDIS_URL", &redis.url()).env("TIDEGATE__REDIS__DEADLINE", "5s");
    let start = || setup().env("TIDEGATE__REDIS__PREFIX", redis.prefix()).start();
    let fleet = [start(), start()];
    let bad = json!({"event_types": ["order.*"], "retry_schedule": ["1s", "1s", "1s"]});
    subscribe(fleet[0].addr(), &receiver.url("/bad"), bad);
    subscribe(fleet[0].addr(), &receiver.url("/named"), json!({"event_types": ["circuit.*"]}));
    for tidegate in &fleet {
        wait_for_subscriptions(tidegate.addr(), 2);
        for _ in 0..10 {
            send(tidegate.addr(), json!({"type": "order.created", "data": {}}));
        }
    }
    wait_until(LATER, "the circuit to open", || !told(&receiver, "/named").is_empty());
    receiver.set_path("/bad", Behaviour::default());
    wait_until(LATER, "the circuit to close", || types(&receiver, "/named").contains(&"circuit.closed".to_owned()));
    wait_until_ended(fleet[0].addr());
    assert_eq!(types(&receiver, "/named"), ["circuit.opened", "circuit.closed"]);
}
