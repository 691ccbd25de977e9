//! A receiver that does nothing but fail is switched off after five days, by the database's time, and not before. One success
//! begins the count anew. One that cannot be read is not taken for one that is gone.

use serde_json::{Value, json};
use testkit::{
    need, postgres,
    receiver::{Answer, Behaviour, Receiver},
    wait_until,
};

use super::{LATER, replica, send, subscribe, wait_for_status};
use crate::support::{Backend, Call, Tidegate};

/// As if the failures had begun so long ago; the process begins anew, so that it knows.
fn failing_for(tidegate: Tidegate, server: &postgres::Shared, ago: &str) -> Tidegate {
    let setup = tidegate.stop().succeeded().again();
    server.sql(&format!("UPDATE subscriptions SET failing_since = now() - interval '{ago}' RETURNING id"));
    setup.start()
}

#[test]
fn five_days_of_nothing_but_failures_switch_a_subscription_off() {
    let server = need!(testkit::postgres());
    let receiver = Receiver::start();
    receiver.set(Answer::Status(500));
    let mut tidegate = replica(&Backend::Postgres(server.clone())).start();
    let addr = tidegate.addr();
    let path = format!(
        "/v1/subscriptions/{}",
        subscribe(addr, &receiver.url("/"), json!({"retry_schedule": []}))["id"].as_str().unwrap()
    );
    let now = || -> Value { Call::get(&path).to(addr).expect(200) };
    let fail = |id: &str| {
        send(addr, json!({"id": id, "type": "a.b", "data": {}}));
        wait_for_status(addr, id, "failed");
    };
    fail("first");
    assert!(now()["failing_since"].is_string(), "{}", now());
    tidegate = failing_for(tidegate, &server, "4 days 23 hours 59 minutes");
    fail("early");
    assert_eq!(now()["enabled"], true);

    tidegate = failing_for(tidegate, &server, "6 days");
    receiver.set(Behaviour::default());
    send(addr, json!({"id": "well", "type": "a.b", "data": {}}));
    wait_for_status(addr, "well", "delivered");
    receiver.set(Answer::Status(500));
    assert_eq!(now()["failing_since"], json!(null));
    fail("again");
    assert_eq!(now()["enabled"], true, "a success began the count anew");

    // Also one whose schedule is longer than that.
    Call::new("PATCH", &path).json(json!({"retry_schedule": ["30h", "30h", "30h", "30h", "30h"]})).to(addr).expect(200);
    tidegate = failing_for(tidegate, &server, "5 days");
    send(addr, json!({"id": "last", "type": "a.b", "data": {}}));
    wait_until(LATER, "it to be switched off", || now()["enabled"] == false);
    assert_eq!(now()["disabled_reason"], "nothing but failures for five days");
    let explained = || Call::post("/v1/events/explain", json!({"type": "a.b", "data": {}})).to(addr).expect(200);
    wait_until(LATER, "intake to know", || explained()[0]["would_receive"] == false);
    send(addr, json!({"id": "unwanted", "type": "a.b", "data": {}}));
    assert_eq!(Call::get("/v1/events/unwanted").to(addr).expect(200)["status"], "unmatched");
    tidegate.stop().succeeded();
}

/// Each change of a subscription's health is one of the row that all changes of all subscriptions go through.
#[test]
fn mixed_answers_do_not_change_the_subscription_with_every_call() {
    let server = need!(testkit::postgres());
    let receiver = Receiver::start();
    let tidegate = replica(&Backend::Postgres(server.clone())).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({"retry_schedule": []}));
    let version =
        || -> i64 { server.sql("SELECT version FROM subscription_version")[0][0].as_deref().unwrap().parse().unwrap() };
    let before = version();
    for number in 0..12 {
        let (status, answer) = if number % 2 == 0 { ("failed", 500) } else { ("delivered", 200) };
        receiver.set(Answer::Status(answer));
        send(addr, json!({"id": number.to_string(), "type": "a.b", "data": {}}));
        wait_for_status(addr, &number.to_string(), status);
    }
    assert_eq!(version() - before, 2, "the first failure and the success after it");
    tidegate.stop().succeeded();
}

#[test]
fn a_subscription_that_cannot_be_read_keeps_what_waits_for_it() {
    let server = need!(testkit::postgres());
    let receiver = Receiver::start();
    receiver.set(Answer::Status(500));
    let tidegate = replica(&Backend::Postgres(server.clone())).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({"retry_schedule": ["1s", "1h"]}));
    send(addr, json!({"id": "a", "type": "a.b", "data": {}}));
    wait_for_status(addr, "a", "retrying");
    let setup = tidegate.stop().succeeded().again();
    // As another master key would have sealed it.
    server.sql("UPDATE subscription_secrets SET sealed = decode('00', 'hex') RETURNING id");
    let tidegate = setup.start();
    let waits = wait_for_status(addr, "a", "throttled");
    assert_eq!(waits["last_error"], "put off: the subscription cannot be used, see the log");
    tidegate.stop().succeeded();
}

/// A setting of a newer version stopped the catalog of the whole replica, also after a restart, and later the list of all others.
#[test]
fn a_subscription_that_another_version_wrote_stops_no_other() {
    let server = need!(testkit::postgres());
    let receiver = Receiver::start();
    let tidegate = replica(&Backend::Postgres(server.clone())).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/odd"), json!({"id": "odd", "event_types": ["odd"]}));
    server.sql("UPDATE subscription_version SET version = version + 1 RETURNING version");
    let changed = server.sql(
        "UPDATE subscriptions SET settings = replace(settings, '\"ordering\":\"none\"', '\"ordering\":\"strict\"'),
           version = (SELECT version FROM subscription_version)
         RETURNING settings LIKE '%strict%'",
    );
    assert_eq!(changed[0][0].as_deref(), Some("t"));
    subscribe(addr, &receiver.url("/good"), json!({"id": "good", "event_types": ["good"]}));
    send(addr, json!({"id": "one", "type": "good", "data": {}}));
    wait_for_status(addr, "one", "delivered");
    let shown = Call::get("/v1/subscriptions/odd").to(addr).expect(200);
    assert_eq!((&shown["id"], &shown["state"]), (&json!("odd"), &json!("unusable")), "{shown}");
    assert_eq!((&shown["url"], &shown["ordering"]), (&json!(receiver.url("/odd")), &json!("strict")), "{shown}");
    assert!(shown["created_at"].is_string() && shown["enabled"] == true, "{shown}");
    let listed = || Call::get("/v1/subscriptions").to(addr).expect(200)["data"].clone();
    let states: Vec<Value> = listed().as_array().unwrap().iter().map(|one| one["state"].clone()).collect();
    assert_eq!(states, ["unusable", "active"], "the last id first, and one that is odd hides no other");
    let change = Call::new("PATCH", "/v1/subscriptions/odd").json(json!({"rate_limit": 5})).to(addr);
    let refused = change.expect_problem(409, "unusable_subscription");
    assert!(refused["detail"].as_str().unwrap().contains("the subscription \"odd\""), "{refused}");
    for path in ["/v1/subscriptions/odd/rotate-secret", "/v1/subscriptions/odd/test"] {
        Call::new("POST", path).to(addr).expect_problem(409, "unusable_subscription");
    }
    for (action, enabled) in [("pause", false), ("resume", true)] {
        let switched = Call::new("POST", &format!("/v1/subscriptions/odd/{action}")).to(addr).expect(200);
        assert_eq!((&switched["state"], &switched["enabled"]), (&json!("unusable"), &json!(enabled)), "{switched}");
    }
    assert_eq!(listed()[0]["ordering"], "strict", "nothing of it was written over");

    let tidegate = tidegate.stop().succeeded().again().start();
    send(addr, json!({"id": "two", "type": "good", "data": {}}));
    wait_for_status(addr, "two", "delivered");
    Call::new("DELETE", "/v1/subscriptions/odd").to(tidegate.addr()).expect(204);
    let left = Call::get("/v1/subscriptions").to(tidegate.addr()).expect(200);
    assert_eq!((&left["data"][0]["id"], left["data"].as_array().unwrap().len()), (&json!("good"), 1), "{left}");
    tidegate.stop().succeeded();
}
