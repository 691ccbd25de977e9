//! Private addresses are called where `dispatch.allow_networks` names their network; dev mode calls loopback.

use serde_json::json;
use testkit::{receiver::Receiver, wait_until};

use super::{LATER, replica};
use crate::support::{ADMIN_KEY, Backend, Call, Response, Setup, Tidegate};

const SETTING: &str = "TIDEGATE__DISPATCH__ALLOW_NETWORKS";

fn locked() -> Setup {
    replica(&Backend::Sqlite).env("TIDEGATE_ADMIN_KEY", ADMIN_KEY)
}

fn create(tidegate: &Tidegate, url: &str) -> Response {
    let settings = json!({"url": url, "event_types": ["**"]});
    Call::post("/v1/subscriptions", settings).admin().to(tidegate.addr())
}

fn send(tidegate: &Tidegate, id: &str) {
    Call::post("/v1/events", json!({"id": id, "type": "a.b", "data": {}})).admin().to(tidegate.addr()).expect(202);
}

/// Waits until the event's delivery has this under `field`.
fn wait_for(tidegate: &Tidegate, id: &str, field: &str, value: &str) {
    let path = format!("/v1/events/{id}/deliveries");
    let delivery = || Call::get(&path).admin().to(tidegate.addr()).expect(200)["data"][0].clone();
    wait_until(LATER, format!("{field} of {id} to be {value:?}"), || delivery()[field] == value);
}

#[test]
fn a_receiver_on_loopback_is_called_by_those_alone_that_allow_its_network() {
    let receiver = Receiver::start();
    let without = locked().start();
    let refused = create(&without, &receiver.url("/")).expect_problem(422, "address_forbidden");
    assert_eq!(refused["field"], "url");
    assert!(refused["detail"].as_str().unwrap().contains("dispatch.allow_networks"), "{refused}");

    let with = without.stop().succeeded().again().env(SETTING, "10.20.0.0/16, 127.0.0.0/8").start();
    create(&with, &receiver.url("/")).expect(201);
    send(&with, "first");
    wait_for(&with, "first", "status", "delivered");
    for url in ["http://192.168.1.1/", "http://169.254.169.254/", "http://[::1]:8080/", "http://127.0.0.1:22/"] {
        assert_eq!(create(&with, url).json()["field"], "url", "{url}");
    }

    let without = with.stop().succeeded().again().env(SETTING, "").start();
    send(&without, "second");
    wait_for(&without, "second", "last_error", "put off: the subscription cannot be used, see the log");
    let state = Call::get("/v1/subscriptions").admin().to(without.addr()).expect(200)["data"][0]["state"].clone();
    assert_eq!((state, receiver.count()), (json!("unusable"), 1));
    assert!(without.output().contains("dispatch.allow_networks"), "{}", without.output());

    let with = without.stop().succeeded().again().env(SETTING, "127.0.0.0/8").start();
    wait_for(&with, "second", "status", "delivered");
    assert_eq!(receiver.count(), 2);
    with.stop().succeeded();
}

/// It went to every private network. No event is sent here, so nothing is called.
#[test]
fn dev_mode_calls_loopback_and_no_other_private_address_that_is_not_allowed() {
    let private = ["http://10.0.0.1/", "http://172.16.0.1/", "http://192.168.1.1/", "http://[fd12::1]/"];
    let loopback = ["http://127.0.0.1:9/", "http://[::1]:9/", "http://localhost:9/"];
    let dev = replica(&Backend::Sqlite).start();
    for url in private {
        let refused = create(&dev, url).expect_problem(422, "address_forbidden");
        assert_eq!(refused["field"], "url", "{url}");
    }
    for url in loopback {
        let id = create(&dev, url).expect(201)["id"].as_str().unwrap().to_owned();
        let change = Call::new("PATCH", &format!("/v1/subscriptions/{id}")).json(json!({"url": private[0]}));
        change.to(dev.addr()).expect_problem(422, "address_forbidden");
    }
    let dev = dev.stop().succeeded().again().env(SETTING, "10.0.0.0/24").start();
    for (url, status) in private.into_iter().zip([201, 422, 422, 422]).chain(loopback.map(|url| (url, 201))) {
        assert_eq!(create(&dev, url).status, status, "{url}");
    }
    dev.stop().succeeded();
}
