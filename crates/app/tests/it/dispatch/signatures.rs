//! Receivers that hold only a public key, and operators who look at a gate.

use dispatch::delivery::verify::{PublicKey, Verifier};
use serde_json::{Value, json};
use testkit::{
    receiver::{Answer, Receiver},
    wait_until,
};

use super::{LATER, replica, send, send_all, subscribe, wait_for_status};
use crate::support::{Backend, Call};

#[test]
fn a_receiver_with_only_the_public_key_verifies_v1a() {
    let receiver = Receiver::start();
    let tidegate = replica(&Backend::Sqlite).start();
    let subscription = subscribe(tidegate.addr(), &receiver.url("/"), json!({"signatures": "v1+v1a"}));
    let public_key = subscription["public_keys"][0].as_str().unwrap().to_owned();
    send(tidegate.addr(), json!({"type": "a.b", "data": {"n": 1}}));

    let call = receiver.received_blocking(1, LATER).remove(0);
    let header = |name: &str| call.header(name).to_owned();
    let (id, timestamp, signatures) = (header("webhook-id"), header("webhook-timestamp"), header("webhook-signature"));
    assert_eq!(signatures.split(' ').count(), 2, "{signatures}");
    let verifier = Verifier { secrets: Vec::new(), public_keys: vec![PublicKey::parse("key", &public_key).unwrap()] };
    let now = timestamp.parse().unwrap();
    assert_eq!(verifier.verify(&id, &timestamp, &signatures, &call.body, now), Ok(()));
    assert!(verifier.verify("other", &timestamp, &signatures, &call.body, now).is_err());

    let path = format!("/v1/subscriptions/{}", subscription["id"].as_str().unwrap());
    let changed = Call::new("PATCH", &path).json(json!({"signatures": "v1"})).to(tidegate.addr()).expect(200);
    assert_eq!(changed.get("public_keys"), None);
    send(tidegate.addr(), json!({"type": "a.b", "data": {"n": 2}}));
    let call = receiver.received_blocking(2, LATER).remove(1);
    assert!(!call.header("webhook-signature").contains("v1a,"));
}

/// The circuit was about the URL that failed. Its next probe would be half a minute away.
#[test]
fn a_subscription_with_another_url_has_a_closed_circuit() {
    let [broken, healthy] = [Receiver::start(), Receiver::start()];
    broken.set(Answer::Status(500));
    let tidegate = replica(&Backend::Sqlite).start();
    let addr = tidegate.addr();
    let subscription = subscribe(addr, &broken.url("/"), json!({"retry_schedule": ["1h"]}));
    let path = format!("/v1/subscriptions/{}", subscription["id"].as_str().unwrap());
    let circuit = || Call::get(&path).to(addr).expect(200)["gate"]["circuit"].clone();
    send_all(addr, (0..5).map(|n| json!({"type": "a.b", "data": n})));
    wait_until(LATER, "the circuit to open", || circuit() == "open");
    let patch = |change: Value| Call::new("PATCH", &path).json(change).to(addr).expect(200);
    patch(json!({"description": "still broken"}));
    assert_eq!(circuit(), "open");
    patch(json!({"url": healthy.url("/")}));
    assert_eq!(circuit(), "closed");
    send(addr, json!({"id": "after", "type": "a.b", "data": {}}));
    wait_for_status(addr, "after", "delivered");
    assert_eq!(healthy.count(), 1);
}

#[test]
fn a_gate_shows_its_circuit_its_calls_and_what_is_left() {
    let tidegate = replica(&Backend::Sqlite).start();
    let subscription =
        subscribe(tidegate.addr(), "http://127.0.0.1:9/", json!({"rate_limit": 7, "max_concurrency": 3}));
    let path = format!("/v1/subscriptions/{}/gate", subscription["id"].as_str().unwrap());
    let gate = Call::get(&path).to(tidegate.addr()).expect(200);
    assert_eq!(
        gate,
        json!({"circuit": "closed", "failures": 0, "retry_after_ms": 0, "calls": 0, "max_concurrency": 3,
            "rate_limit": 7, "rate_remaining": 7, "degraded": false})
    );
    let shown = Call::get(path.trim_end_matches("/gate")).to(tidegate.addr()).expect(200);
    assert_eq!(shown["gate"], gate);
    let listed = Call::get("/v1/subscriptions").to(tidegate.addr()).expect(200);
    assert_eq!(listed["data"][0].get("gate"), None, "a list asks no gate");
    Call::get("/v1/subscriptions/sub_unknown/gate").to(tidegate.addr()).expect_problem(404, "not_found");
}
