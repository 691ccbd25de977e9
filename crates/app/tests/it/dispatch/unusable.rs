//! Subscriptions that a replica knows and cannot call: what it takes in for them waits for one that can.

use serde_json::{Value, json};
use testkit::{
    need, postgres,
    receiver::{Answer, Receiver},
    wait_until,
};

use super::{LATER, deliveries, replica, send, subscribe, wait_for_status, wait_for_subscriptions};
use crate::support::{ADMIN_KEY, Backend, Call, MASTER_KEY, each_queue};

each_queue! {
    what_is_sent_to_a_replica_with_another_master_key_is_kept
}

const PUT_OFF: &str = "put off: the subscription cannot be used, see the log";

/// An event for a subscription that another replica had sealed with a newer master key was answered with 202, and was nobody's.
fn what_is_sent_to_a_replica_with_another_master_key_is_kept(backend: &Backend) {
    let receiver = Receiver::start();
    let old = replica(backend).start();
    let keys = format!("{},{MASTER_KEY}", "b".repeat(64));
    let new = replica(backend).env("TIDEGATE_MASTER_KEY", &keys);
    let new = new.env("TIDEGATE__SERVER__DATA_DIR", old.data_dir().to_str().unwrap()).arg("--roles").arg("api").start();
    let wants = json!({"id": "s", "event_types": ["a.*"], "ordering": "key", "filter": {"data.n": {"gte": 1}}});
    subscribe(new.addr(), &receiver.url("/"), wants);
    subscribe(new.addr(), &receiver.url("/"), json!({"id": "told", "event_types": ["subscription.disabled"]}));
    let addr = old.addr();
    wait_for_subscriptions(addr, 2);
    let explain = |event: Value| Call::post("/v1/events/explain", event).to(addr).expect(200)[0].clone();
    let wanted = explain(json!({"type": "a.b", "data": {"n": 1}}));
    assert_eq!(wanted["would_receive"], true);
    assert!(wanted["reason"].as_str().unwrap().contains("waits for one that can"), "{wanted}");
    assert_eq!(explain(json!({"type": "a.b", "data": {"n": 0}}))["would_receive"], false, "its filter is known");

    for (id, key) in [("one", json!("k")), ("two", json!("k")), ("alone", Value::Null)] {
        send(addr, json!({"id": id, "type": "a.b", "data": {"n": 1}, "ordering_key": key}));
    }
    for head in ["one", "alone"] {
        assert_eq!(wait_for_status(addr, head, "throttled")["last_error"], PUT_OFF);
    }
    wait_for_status(addr, "two", "pending");
    let test = Call::new("POST", "/v1/subscriptions/s/test").to(addr).expect(202);
    wait_for_status(addr, test["id"].as_str().unwrap(), "throttled");
    let shown = [Call::get("/v1/subscriptions/s"), Call::get("/v1/subscriptions")].map(|get| get.to(addr).expect(200));
    assert_eq!([&shown[0]["state"], &shown[1]["data"][0]["state"]], ["unusable", "unusable"]);
    for path in ["/v1/subscriptions/s/pause", "/v1/subscriptions/s/resume"] {
        assert_eq!(Call::new("POST", path).to(addr).expect(200)["state"], "unusable");
    }
    let change = Call::new("PATCH", "/v1/subscriptions/s").json(json!({"rate_limit": 5})).to(addr);
    change.expect_problem(409, "unusable_subscription");
    Call::new("POST", "/v1/subscriptions/s/rotate-secret").to(addr).expect_problem(409, "unusable_subscription");
    let gone = Receiver::start();
    gone.set(Answer::Status(410));
    subscribe(addr, &gone.url("/"), json!({"event_types": ["gone"]}));
    send(addr, json!({"type": "gone", "data": {}}));
    wait_until(LATER, "what is told of it to be put off", || {
        deliveries(addr, "&subscription=told").first().is_some_and(|told| told["last_error"] == PUT_OFF)
    });
    assert_eq!(receiver.count(), 0);

    let old = old.stop().succeeded().again().env("TIDEGATE_MASTER_KEY", &keys).start();
    let arrived: Vec<String> =
        receiver.received_blocking(5, LATER).iter().map(|request| request.id().to_owned()).collect();
    let place = |id: &str| arrived.iter().position(|arrived| arrived == id);
    assert!(place("one").is_some() && place("one") < place("two"), "{arrived:?}");
    assert!(place("alone").is_some() && place(test["id"].as_str().unwrap()).is_some(), "{arrived:?}");
    old.stop().succeeded();
}

/// Dev mode lets webhooks go to loopback; with an admin key it is over.
#[test]
fn what_is_sent_while_a_url_is_refused_is_kept() {
    let receiver = Receiver::start();
    let setup = {
        let dev = replica(&Backend::Sqlite).start();
        subscribe(dev.addr(), &receiver.url("/"), json!({}));
        dev.stop().succeeded().again()
    };
    let locked = setup.env("TIDEGATE_ADMIN_KEY", ADMIN_KEY).start();
    let addr = locked.addr();
    Call::post("/v1/events", json!({"id": "a", "type": "a.b", "data": {}})).admin().to(addr).expect(202);
    let delivery = || Call::get("/v1/events/a/deliveries").admin().to(addr).expect(200)["data"][0].clone();
    wait_until(LATER, "the delivery to be put off", || delivery()["last_error"] == PUT_OFF);
    assert_eq!(Call::get("/v1/subscriptions").admin().to(addr).expect(200)["data"][0]["state"], "unusable");
    let dev = locked.stop().succeeded().again().env("TIDEGATE_ADMIN_KEY", "").start();
    wait_for_status(dev.addr(), "a", "delivered");
    dev.stop().succeeded();
}

/// As another version would change the settings of a subscription.
fn written_elsewhere(server: &postgres::Shared, id: &str, from: &str, to: &str) {
    server.sql("UPDATE subscription_version SET version = version + 1");
    let changed = server.sql(&format!(
        "UPDATE subscriptions SET settings = replace(settings, '{from}', '{to}'), version = (SELECT version FROM subscription_version)
         WHERE id = '{id}' RETURNING position('{to}' IN settings) > 0"
    ));
    assert_eq!(changed[0][0].as_deref(), Some("t"));
}

/// Its gate was a 404, though it is listed and can be switched and deleted; so was the test of one whose filter alone is foreign.
#[test]
fn what_needs_the_settings_of_another_version_says_so() {
    let server = need!(testkit::postgres());
    let tidegate = replica(&Backend::Postgres(server.clone())).start();
    let addr = tidegate.addr();
    subscribe(addr, "http://127.0.0.1:9/", json!({"id": "strict"}));
    subscribe(addr, "http://127.0.0.1:9/", json!({"id": "filtered", "filter": {"data.n": {"gte": 1}}}));
    subscribe(addr, "http://127.0.0.1:9/", json!({"id": "usual"}));
    written_elsewhere(&server, "strict", "\"ordering\":\"none\"", "\"ordering\":\"strict\"");
    written_elsewhere(&server, "filtered", "\"gte\"", "\"resembles\"");
    let explained = || Call::post("/v1/events/explain", json!({"type": "a.b", "data": {"n": 1}})).to(addr).expect(200);
    let reason = "another version wrote it, and this replica cannot read it, as its log says";
    let unread = |id| json!({"subscription_id": id, "would_receive": false, "reason": reason});
    wait_until(LATER, "both to be named", || {
        explained().as_array().unwrap()[1..] == [unread("filtered"), unread("strict")]
    });
    assert_eq!(explained()[0]["subscription_id"], "usual");
    for id in ["strict", "filtered"] {
        let path = format!("/v1/subscriptions/{id}");
        assert_eq!(Call::get(&path).to(addr).expect(200)["state"], "unusable");
        for (method, action) in [("GET", "gate"), ("POST", "test")] {
            let refused = Call::new(method, &format!("{path}/{action}")).to(addr);
            let refused = refused.expect_problem(409, "unusable_subscription");
            let detail = refused["detail"].as_str().unwrap();
            assert!(
                detail.contains(&format!("the subscription {id:?}")) && detail.contains("ask a replica"),
                "{detail}"
            );
        }
    }
    assert_eq!(Call::get("/v1/subscriptions/usual/gate").to(addr).expect(200)["circuit"], "closed");
    Call::get("/v1/subscriptions/nobody/gate").to(addr).expect_problem(404, "not_found");
    tidegate.stop().succeeded();
}

#[test]
fn while_subscriptions_cannot_be_read_the_last_known_ones_are_used() {
    let server = need!(testkit::postgres());
    let receiver = Receiver::start();
    let tidegate = replica(&Backend::Postgres(server.clone())).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({}));
    server.sql("ALTER TABLE subscriptions RENAME COLUMN settings TO elsewhere");
    let is_said = || tidegate.output().contains("Subscriptions could not be read; the last known ones are used.");
    wait_until(LATER, "it to be said", is_said);
    send(addr, json!({"id": "a", "type": "a.b", "data": {}}));
    wait_for_status(addr, "a", "delivered");
    server.sql("ALTER TABLE subscriptions RENAME COLUMN elsewhere TO settings");
    subscribe(addr, &receiver.url("/"), json!({}));
    tidegate.stop().succeeded();
}
