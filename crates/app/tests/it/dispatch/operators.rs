//! What people do by hand: retry, cancel, test, pause and resume, delete, rotate a secret.

use serde_json::{Value, json};
use std::{fs, net::SocketAddr, thread, time::Duration};
use testkit::{
    need,
    receiver::{Answer, Behaviour, Receiver, Secret, Verdict},
    wait_until,
};

use super::{LATER, attempts, deliveries, replica, send, subscribe, wait_for_status};
use crate::support::{Backend, Call, Response, each_backend, each_queue};

each_queue! {
    a_delivery_is_retried_and_cancelled_by_hand
    what_is_cancelled_is_not_sent
    a_paused_subscription_parks_and_a_resumed_one_delivers
    a_call_that_is_under_way_when_its_subscription_is_deleted_is_recorded
}

each_backend! {
    what_comes_in_while_paused_waits_and_while_disabled_does_not
    a_deleted_subscription_gets_nothing_more
    a_rotation_takes_a_secret_of_ones_own_renews_the_key_and_has_an_end
    changes_of_different_fields_at_the_same_time_are_all_kept
    a_key_more_than_can_sign_is_refused_however_it_comes
    a_key_that_ends_is_not_taken_for_the_one_that_v1a_needs
}

fn by_hand(addr: SocketAddr, delivery: &Value, action: &str) -> Response {
    Call::new("POST", &format!("/v1/deliveries/{}/{action}", delivery["id"].as_str().unwrap())).to(addr)
}

fn path(subscription: &Value) -> String {
    format!("/v1/subscriptions/{}", subscription["id"].as_str().unwrap())
}

/// It said no to a filter over the id, which an event without one is given on its way in.
#[test]
fn an_event_is_explained_with_an_id_like_the_one_that_it_would_be_given() {
    let receiver = Receiver::start();
    let tidegate = replica(&Backend::Sqlite).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({"filter": {"id": {"starts_with": "evt_"}}}));
    let event = json!({"type": "a.b", "data": {}});
    let would_receive = |event: &Value| {
        Call::post("/v1/events/explain", event.clone()).to(addr).expect(200)[0]["would_receive"].clone()
    };
    assert_eq!(would_receive(&event), true);
    assert_eq!(would_receive(&json!({"id": "mine", "type": "a.b", "data": {}})), false);
    wait_for_status(addr, send(addr, event)["id"].as_str().unwrap(), "delivered");
}

fn a_delivery_is_retried_and_cancelled_by_hand(backend: &Backend) {
    let receiver = Receiver::start();
    receiver.set(Answer::Status(500));
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({"retry_schedule": ["1h", "1h"]}));
    send(addr, json!({"id": "one", "type": "a.b", "data": {}}));
    let waiting = wait_for_status(addr, "one", "retrying");

    // Before its schedule is over, an attempt by hand is one of them: the schedule goes on.
    by_hand(addr, &waiting, "retry").expect(202);
    receiver.received_blocking(2, LATER);
    let still = wait_for_status(addr, "one", "retrying");
    assert_eq!(still["attempts"], 2);
    let cancelled = by_hand(addr, &still, "cancel").expect(200);
    assert_eq!((&cancelled["status"], &cancelled["next_attempt_at"]), (&json!("cancelled"), &json!(null)));
    by_hand(addr, &still, "cancel").expect_problem(409, "already_ended");

    for path in [
        "/v1/subscriptions",
        "/v1/events",
        "/v1/deliveries",
        &format!("/v1/deliveries/{}/attempts", still["id"].as_str().unwrap()),
    ] {
        assert_times(&Call::get(path).to(addr).expect(200)["data"][0]);
    }

    // After its end, it is the only one: a failure starts no new schedule.
    by_hand(addr, &still, "retry").expect(202);
    receiver.received_blocking(3, LATER);
    let failed = wait_for_status(addr, "one", "failed");
    assert_eq!(failed["next_attempt_at"], json!(null));
    receiver.set(Behaviour::default());
    by_hand(addr, &failed, "retry").expect(202);
    let delivered = wait_for_status(addr, "one", "delivered");
    assert_eq!((&delivered["attempts"], attempts(addr, &delivered).len()), (&json!(4), 4));
    by_hand(addr, &json!({"id": "dlv_nobody"}), "retry").expect_problem(404, "not_found");
}

/// What waits for a slow rate waits where it can be cancelled; what may be on its way cannot.
/// The same on every database: PostgreSQL knows microseconds, and SQLite does not.
#[track_caller]
fn assert_times(shown: &Value) {
    let times: Vec<&str> =
        shown.as_object().unwrap().values().filter_map(Value::as_str).filter(|text| text.ends_with('Z')).collect();
    assert!(!times.is_empty() && times.iter().all(|time| time.len() == "2026-11-19T08:00:00.000Z".len()), "{shown}");
}

fn what_is_cancelled_is_not_sent(backend: &Backend) {
    const EVENTS: usize = 30;
    let receiver = Receiver::start();
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({"rate_limit": 1}));
    for number in 0..EVENTS {
        send(addr, json!({"id": format!("e{number}"), "type": "a.b", "data": {}}));
    }
    receiver.received_blocking(2, LATER);
    let cancelled = deliveries(addr, "").into_iter().filter(|delivery| {
        // What has ended, or may be on its way, is a conflict.
        by_hand(addr, delivery, "cancel").status == 200
    });
    let cancelled = cancelled.count();
    assert!(cancelled > EVENTS / 2, "only {cancelled} could be cancelled");
    super::wait_until_ended(addr);
    assert_eq!(receiver.count(), EVENTS - cancelled);
}

fn a_paused_subscription_parks_and_a_resumed_one_delivers(backend: &Backend) {
    let receiver = Receiver::start();
    receiver.set(Behaviour { fail_first: 1, ..Behaviour::default() });
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    let subscription = subscribe(addr, &receiver.url("/"), json!({"retry_schedule": ["3s"]}));
    send(addr, json!({"id": "parked", "type": "a.b", "data": {}}));
    wait_for_status(addr, "parked", "retrying");
    let switch = |enabled: bool| Call::new("PATCH", &path(&subscription)).json(json!({"enabled": enabled})).to(addr);
    assert_eq!(switch(false).expect(200)["enabled"], false);
    let parked = wait_for_status(addr, "parked", "throttled");
    assert_eq!((&parked["attempts"], &parked["deferrals"]), (&json!(1), &json!(1)));
    assert!(parked["next_attempt_at"].is_string(), "{parked}");
    assert_eq!(receiver.count(), 1);
    switch(true).expect(200);
    assert_eq!(wait_for_status(addr, "parked", "delivered")["attempts"], 2);
}

#[test]
fn what_waits_is_sent_also_if_the_subscription_is_resumed_while_no_worker_is_there() {
    let server = need!(testkit::postgres());
    let receiver = Receiver::start();
    let tidegate = replica(&Backend::Postgres(server.clone())).start();
    let subscription = subscribe(tidegate.addr(), &receiver.url("/"), json!({}));
    Call::new("POST", &format!("{}/pause", path(&subscription))).to(tidegate.addr()).expect(200);
    send(tidegate.addr(), json!({"id": "parked", "type": "a.b", "data": {}}));
    wait_for_status(tidegate.addr(), "parked", "throttled");
    let setup = tidegate.stop().succeeded().again();
    // As a process does that only takes events in.
    server.sql("UPDATE subscriptions SET enabled = TRUE RETURNING id");
    let tidegate = setup.start();
    let delivered = wait_for_status(tidegate.addr(), "parked", "delivered");
    assert_eq!(delivered["last_error"], json!(null));
    tidegate.stop().succeeded();
}

fn what_comes_in_while_paused_waits_and_while_disabled_does_not(backend: &Backend) {
    let receiver = Receiver::start();
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    let subscription = subscribe(addr, &receiver.url("/"), json!({"retry_schedule": []}));
    let post = |action: &str| Call::new("POST", &format!("{}/{action}", path(&subscription))).to(addr).expect(200);
    let paused = post("pause");
    assert_eq!((&paused["state"], &paused["enabled"]), (&json!("paused"), &json!(false)));
    for number in 0..20 {
        send(addr, json!({"id": format!("kept{number}"), "type": "a.b", "data": {}}));
    }
    let explained = Call::post("/v1/events/explain", json!({"type": "a.b", "data": {}})).to(addr).expect(200);
    assert_eq!(explained[0]["would_receive"], true, "{explained}");
    for number in 0..20 {
        let waiting = wait_for_status(addr, &format!("kept{number}"), "throttled");
        assert_eq!((&waiting["attempts"], waiting["next_attempt_at"].is_string()), (&json!(0), true), "{waiting}");
    }
    assert_eq!(receiver.count(), 0);
    assert_eq!(post("resume")["state"], "active");
    receiver.received_blocking(20, LATER);

    receiver.set(Answer::Status(410));
    send(addr, json!({"id": "last", "type": "a.b", "data": {}}));
    wait_for_status(addr, "last", "failed");
    testkit::wait_until(LATER, "it to be disabled", || {
        Call::get(&path(&subscription)).to(addr).expect(200)["state"] == "disabled"
    });
    send(addr, json!({"id": "unwanted", "type": "a.b", "data": {}}));
    assert_eq!(Call::get("/v1/events/unwanted").to(addr).expect(200)["status"], "unmatched");
    // Another change leaves it as it is; pausing it says that events are wanted again.
    let named = Call::new("PATCH", &path(&subscription)).json(json!({"description": "x"})).to(addr).expect(200);
    assert_eq!(named["state"], "disabled");
    assert_eq!(post("pause")["state"], "paused");
    receiver.set(Behaviour::default());
    send(addr, json!({"id": "wanted", "type": "a.b", "data": {}}));
    post("resume");
    wait_for_status(addr, "wanted", "delivered");
    Call::new("POST", "/v1/subscriptions/sub_nobody/pause").to(addr).expect_problem(404, "not_found");
}

fn a_deleted_subscription_gets_nothing_more(backend: &Backend) {
    let receiver = Receiver::start();
    receiver.set(Answer::Status(500));
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    let subscription = subscribe(addr, &receiver.url("/"), json!({"retry_schedule": ["1h"]}));
    send(addr, json!({"id": "orphan", "type": "a.b", "data": {}}));
    let waiting = wait_for_status(addr, "orphan", "retrying");
    Call::new("DELETE", &path(&subscription)).to(addr).expect(204);
    let cancelled = wait_for_status(addr, "orphan", "cancelled");
    assert_eq!(cancelled["last_error"], "the subscription was deleted");
    Call::get(&path(&subscription)).to(addr).expect_problem(404, "not_found");
    Call::new("DELETE", &path(&subscription)).to(addr).expect_problem(404, "not_found");
    // A retry by hand has nowhere to go, and says so.
    by_hand(addr, &waiting, "retry").expect_problem(409, "subscription_gone");
    assert_eq!(receiver.count(), 1);
}

/// It was recorded as cancelled with no attempt, though the receiver had it.
fn a_call_that_is_under_way_when_its_subscription_is_deleted_is_recorded(backend: &Backend) {
    let receiver = Receiver::start();
    receiver.set(Behaviour { delay: Duration::from_secs(1), ..Behaviour::default() });
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    let subscription = subscribe(addr, &receiver.url("/"), json!({"max_concurrency": 1}));
    send(addr, json!({"id": "called", "type": "a.b", "data": {}}));
    wait_until(LATER, "the call", || receiver.connections() == 1);
    for id in ["behind", "last"] {
        send(addr, json!({"id": id, "type": "a.b", "data": {}}));
    }
    Call::new("DELETE", &path(&subscription)).to(addr).expect(204);
    let called = wait_for_status(addr, "called", "delivered");
    assert_eq!(attempts(addr, &called).len(), 1);
    for id in ["behind", "last"] {
        assert_eq!(wait_for_status(addr, id, "cancelled")["attempts"], 0);
    }
    assert_eq!(receiver.count(), 1);
    assert_eq!(tidegate.metric("tidegate_deliveries_total{result=\"cancelled\"}"), Some(2.0));
}

#[test]
fn deliveries_and_attempts_are_found_by_what_they_have_in_common() {
    let receiver = Receiver::start();
    receiver.set_path("/slow", Answer::Hang);
    let tidegate = replica(&Backend::Sqlite).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({"event_types": ["order.*"]}));
    let slow = json!({"event_types": ["slow"], "timeout": "200ms", "retry_schedule": []});
    let slow = subscribe(addr, &receiver.url("/slow"), slow);
    for (id, event_type) in [("a", "order.created"), ("b", "order.paid"), ("c", "slow")] {
        send(addr, json!({"id": id, "type": event_type, "data": {}}));
    }
    wait_for_status(addr, "c", "failed");
    super::wait_until_ended(addr);
    let count = |path: &str| Call::get(path).to(addr).expect(200)["data"].as_array().unwrap().len();
    let id = slow["id"].as_str().unwrap();
    for (query, found) in [
        ("", 3),
        ("event=a", 1),
        ("event=nobody", 0),
        ("type=order.paid", 1),
        ("status=failed", 1),
        (&format!("subscription={id}"), 1),
        (&format!("subscription={id}&status=delivered"), 0),
        ("since=2099-01-01T00:00:00Z", 0),
        ("until=2099-01-01T00:00:00Z", 3),
    ] {
        assert_eq!(count(&format!("/v1/deliveries?{query}")), found, "{query}");
        assert_eq!(count(&format!("/v1/attempts?{query}")), found, "{query}");
    }
    let timeouts = Call::get("/v1/attempts?class=timeout").to(addr).expect(200);
    let found = &timeouts["data"][0];
    assert_eq!(
        (&found["event_id"], &found["subscription_id"], &found["number"]),
        (&json!("c"), &slow["id"], &json!(1))
    );
    assert_eq!(count("/v1/attempts?class=success"), 2);
    let problem = Call::get("/v1/attempts?class=nonsense").to(addr).expect_problem(400, "invalid_query");
    assert_eq!(problem["field"], "class");
    assert!(problem["detail"].as_str().unwrap().contains("timeout"), "{problem}");
    assert_eq!(count("/v1/events?since=2099-01-01T00:00:00Z"), 0);
    assert_eq!(count("/v1/events?type=slow"), 1);
    Call::get("/v1/attempts?colour=red").to(addr).expect_problem(400, "invalid_query");
}

#[test]
fn a_test_event_goes_to_its_subscription_alone() {
    let receiver = Receiver::start();
    let tidegate = replica(&Backend::Sqlite).start();
    let addr = tidegate.addr();
    let tested = subscribe(addr, &receiver.url("/tested"), json!({"event_types": ["order.*"]}));
    subscribe(addr, &receiver.url("/other"), json!({}));
    let event = Call::new("POST", &format!("{}/test", path(&tested))).to(addr).expect(202);
    wait_for_status(addr, event["id"].as_str().unwrap(), "delivered");
    let requests = receiver.requests();
    assert_eq!((requests.len(), requests[0].path.as_str()), (1, "/tested"));
    let body: Value = serde_json::from_slice(&requests[0].body).unwrap();
    assert_eq!(body["type"], "tidegate.test");
}

#[test]
fn a_rotated_secret_signs_beside_the_old_one() {
    let receiver = Receiver::start();
    let tidegate = replica(&Backend::Sqlite).start();
    let addr = tidegate.addr();
    let subscription = subscribe(addr, &receiver.url("/"), json!({}));
    let rotated = Call::new("POST", &format!("{}/rotate-secret", path(&subscription))).to(addr).expect(200);
    let [old, new] = [&subscription, &rotated].map(|shown| shown["secret"].as_str().unwrap());
    assert_ne!(old, new);
    for (id, secret) in [("by-old", old), ("by-new", new)] {
        receiver.verify_with([Secret::new(secret)]);
        send(addr, json!({"id": id, "type": "a.b", "data": {}}));
        wait_for_status(addr, id, "delivered");
    }
    for request in receiver.requests() {
        assert_eq!(request.verdict, Verdict::Valid);
        assert_eq!(request.header("webhook-signature").split(' ').count(), 2);
    }
    let shown = Call::get(&path(&subscription)).to(addr).expect(200);
    assert_eq!(shown.get("secret"), None, "shown once: {shown}");
}

fn a_rotation_takes_a_secret_of_ones_own_renews_the_key_and_has_an_end(backend: &Backend) {
    let receiver = Receiver::start();
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    let subscription = subscribe(addr, &receiver.url("/"), json!({"signatures": "v1+v1a"}));
    let rotate = |body: Value| Call::post(&format!("{}/rotate-secret", path(&subscription)), body).to(addr);
    let own = format!("whsec_{}", "QUJD".repeat(11));
    for (body, field) in [(json!({"overlap": "1h"}), "overlap"), (json!({"secret": "x"}), "secret")] {
        assert_eq!(rotate(body).expect_problem(422, "invalid_field")["field"], field);
    }
    let rotated = rotate(json!({"secret": own})).expect(200);
    assert_eq!(rotated["secret"], own.as_str());
    let keys = rotated["public_keys"].as_array().unwrap();
    assert_eq!((keys.len(), &keys[1]), (2, &subscription["public_keys"][0]), "the new one first: {rotated}");
    // Of each two sign now, and ten can.
    for _ in 0..3 {
        rotate(json!({})).expect(200);
    }
    rotate(json!({})).expect_problem(409, "too_many_secrets");
    send(addr, json!({"id": "a", "type": "a.b", "data": {}}));
    wait_for_status(addr, "a", "delivered");
    assert_eq!(receiver.requests()[0].header("webhook-signature").split(' ').count(), 10);
}

/// A key that a rotation replaced while `v1a` was off has an end, so `v1a` needs another.
fn a_key_that_ends_is_not_taken_for_the_one_that_v1a_needs(backend: &Backend) {
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    let subscription = subscribe(addr, "http://127.0.0.1:9/", json!({"signatures": "v1+v1a"}));
    let patch =
        |signatures: &str| Call::new("PATCH", &path(&subscription)).json(json!({"signatures": signatures})).to(addr);
    patch("v1").expect(200);
    Call::new("POST", &format!("{}/rotate-secret", path(&subscription))).to(addr).expect(200);
    let keys = patch("v1+v1a").expect(200)["public_keys"].clone();
    assert_eq!(keys.as_array().map(Vec::len), Some(2), "the old one ends tomorrow: {keys}");
    assert_eq!(patch("v1+v1a").expect(200)["public_keys"], keys);
}

/// Ten secrets sign, and `v1a` needs a key beside them: what cannot sign any more must not look active and get nothing.
fn a_key_more_than_can_sign_is_refused_however_it_comes(backend: &Backend) {
    let receiver = Receiver::start();
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    let [full, raced] = [10, 9].map(|secrets| {
        let subscription = subscribe(addr, &receiver.url("/"), json!({}));
        for _ in 1..secrets {
            Call::new("POST", &format!("{}/rotate-secret", path(&subscription))).to(addr).expect(200);
        }
        subscription
    });
    let patch =
        |subscription: &Value| Call::new("PATCH", &path(subscription)).json(json!({"signatures": "v1+v1a"})).to(addr);
    patch(&full).expect_problem(409, "too_many_secrets");
    // There is room for one: the key that a change needs, or the secret of a rotation.
    let outcomes = thread::scope(|scope| {
        let rotate = || Call::new("POST", &format!("{}/rotate-secret", path(&raced))).to(addr);
        let both = [scope.spawn(|| patch(&raced)), scope.spawn(rotate)];
        both.map(|one| one.join().unwrap().status)
    });
    assert!(matches!(outcomes, [200, 409] | [409, 200]), "{outcomes:?}");
    for subscription in [&full, &raced] {
        assert_eq!(Call::get(&path(subscription)).to(addr).expect(200)["state"], "active");
    }
    send(addr, json!({"id": "a", "type": "a.b", "data": {}}));
    let received = receiver.received_blocking(2, LATER);
    assert!(received.iter().all(|request| request.header("webhook-signature").split(' ').count() == 10));
}

/// What is shown can be sent back: a hidden value stays what it was.
#[test]
fn a_hidden_header_that_is_sent_back_keeps_its_value() {
    let receiver = Receiver::start();
    let tidegate = replica(&Backend::Sqlite).start();
    let addr = tidegate.addr();
    let subscription = subscribe(addr, &receiver.url("/"), json!({"headers": {"x-token": "secret", "x-old": "1"}}));
    let patch = |headers: Value| Call::new("PATCH", &path(&subscription)).json(json!({"headers": headers})).to(addr);
    let shown = Call::get(&path(&subscription)).to(addr).expect(200);
    assert_eq!(shown["headers"], json!({"x-token": "***", "x-old": "***"}));
    patch(shown["headers"].clone()).expect(200);
    patch(json!({"X-Token": "***", "x-new": "2"})).expect(200);
    send(addr, json!({"type": "a.b", "data": {}}));
    let call = receiver.received_blocking(1, LATER).remove(0);
    assert_eq!(["x-token", "x-old", "x-new"].map(|name| call.header(name).to_owned()), ["secret", "", "2"]);
    let nothing_there = patch(json!({"x-other": "***"})).expect_problem(422, "invalid_field");
    assert_eq!(nothing_there["field"], "headers.x-other");
    let new = json!({"url": receiver.url("/"), "event_types": ["**"], "headers": {"x-token": "***"}});
    let problem = Call::post("/v1/subscriptions", new).to(addr).expect_problem(422, "invalid_field");
    assert_eq!(problem["field"], "headers.x-token");
}

/// Both were sent, and receivers take two for none, or refuse them.
#[test]
fn a_content_type_of_its_own_takes_the_place_of_ours() {
    let receiver = Receiver::start();
    let tidegate = replica(&Backend::Sqlite).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({"headers": {"Content-Type": "application/cloudevents+json"}}));
    send(addr, json!({"type": "a.b", "data": {}}));
    let call = receiver.received_blocking(1, LATER).remove(0);
    let sent = |name: &str| call.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(sent("content-type"), ["application/cloudevents+json"]);
    assert_eq!(sent("user-agent").len(), 1);
}

#[test]
fn a_subscription_that_cannot_be_used_says_so() {
    let postgres = need!(testkit::postgres());
    let tidegate = replica(&Backend::Postgres(postgres.clone())).start();
    let addr = tidegate.addr();
    let subscription = subscribe(addr, "http://127.0.0.1:9/", json!({}));
    postgres.sql("UPDATE subscription_version SET version = version + 1");
    postgres.sql(
        "UPDATE subscriptions SET settings = replace(settings, 'http:', 'gopher:'), \
         version = (SELECT version FROM subscription_version)",
    );
    wait_until(LATER, "the state to be told", || {
        Call::get(&path(&subscription)).to(addr).expect(200)["state"] == "unusable"
    });
}

fn changes_of_different_fields_at_the_same_time_are_all_kept(backend: &Backend) {
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    let subscription = subscribe(addr, "http://127.0.0.1:9/", json!({}));
    let patch = |body: Value| Call::new("PATCH", &path(&subscription)).json(body).to(addr).expect(200);
    for round in 1..=10 {
        thread::scope(|scope| {
            for field in ["rate_limit", "max_concurrency"] {
                scope.spawn(move || patch(json!({field: round})));
            }
            scope.spawn(move || patch(json!({"description": round.to_string()})));
            scope.spawn(move || patch(json!({"headers": {"x-round": round.to_string()}})));
        });
        let shown = Call::get(&path(&subscription)).to(addr).expect(200);
        let fields = ["rate_limit", "max_concurrency", "description"].map(|field| shown[field].clone());
        assert_eq!(fields, [json!(round), json!(round), json!(round.to_string())], "{shown}");
        assert!(shown["headers"].get("x-round").is_some(), "{shown}");
    }
}

#[test]
fn the_audit_says_who_did_what_to_a_subscription() {
    let tidegate = replica(&Backend::Sqlite).start();
    let addr = tidegate.addr();
    let subscription = subscribe(addr, "http://127.0.0.1:9/", json!({"id": "s"}));
    let by_hand = |action: &str| Call::new("POST", &format!("{}/{action}", path(&subscription))).to(addr);
    Call::new("PATCH", &path(&subscription)).json(json!({"rate_limit": 5})).to(addr).expect(200);
    for action in ["pause", "resume", "rotate-secret"] {
        by_hand(action).expect(200);
    }
    let job = by_hand("replay").expect(202)["id"].clone();
    Call::new("DELETE", &path(&subscription)).to(addr).expect(204);
    let audit = Call::get("/admin/audit").to(addr).expect(200);
    let entries = audit["data"].as_array().unwrap().iter().rev();
    let seen: Vec<[&str; 3]> =
        entries.map(|entry| ["actor", "action", "target"].map(|name| entry[name].as_str().unwrap())).collect();
    let expected = [
        ["dev", "subscription.created", "s"],
        ["dev", "subscription.changed", "s"],
        ["dev", "subscription.paused", "s"],
        ["dev", "subscription.resumed", "s"],
        ["dev", "subscription.rotated", "s"],
        ["dev", "job.replay", job.as_str().unwrap()],
        ["dev", "subscription.deleted", "s"],
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_job_names_only_deliveries_that_are_there() {
    let tidegate = replica(&Backend::Sqlite).start();
    let addr = tidegate.addr();
    let subscription = subscribe(addr, "http://127.0.0.1:9/", json!({}));
    Call::new("POST", &format!("{}/test", path(&subscription))).to(addr).expect(202);
    let delivery = Call::get("/v1/deliveries").to(addr).expect(200)["data"][0]["id"].clone();
    let job = |body: Value| Call::post("/v1/jobs", body).to(addr);
    let unknown = job(json!({"kind": "replay", "deliveries": [delivery, "dlv_nobody"]}));
    assert_eq!(unknown.expect_problem(404, "not_found")["field"], "deliveries[1]");
    assert_eq!(job(json!({"kind": "replay", "status": []})).expect_problem(422, "invalid_field")["field"], "status");
}

#[test]
fn the_size_of_sqlites_files_is_told() {
    const MIB: usize = 1 << 20;
    let tidegate = replica(&Backend::Sqlite).start();
    let told = || tidegate.metric("tidegate_database_bytes");
    wait_until(LATER, "the size to be told", || told().is_some());
    let empty = told().unwrap();
    for _ in 0..4 {
        send(tidegate.addr(), json!({"type": "a.b", "data": "x".repeat(MIB - 200)}));
    }
    wait_until(LATER, "what came in to be told", || told().unwrap() > empty + 4.0 * (MIB - 200) as f64);
    let files = fs::read_dir(tidegate.data_dir()).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
    assert!(told().unwrap() <= files.sum::<u64>() as f64);
}
