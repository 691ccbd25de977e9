//! Rejected records that are retried: once what was wrong with one is mended it is delivered, once, and the record is gone.
//! What still cannot become an event stays as it is.

use std::net::SocketAddr;

use serde_json::json;
use testkit::{need, receiver::Receiver, wait::try_wait_until};

use super::{member, wait_until_shared};
use crate::{
    dispatch::{LATER, replica, subscribe, wait_for_status},
    support::{Backend, Call},
};

/// The newest record that was rejected for this reason, once there is one.
fn rejected(addr: SocketAddr, reason: &str) -> String {
    let list = format!("/v1/rejected?all=true&reason={reason}");
    let found = try_wait_until(LATER, format!("a record to be rejected: {reason}"), || {
        let page = Call::get(&list).to(addr).expect(200);
        page["data"][0]["id"].as_str().map(str::to_owned)
    });
    found.unwrap_or_else(|timed_out| panic!("{timed_out}"))
}

fn retry(record: &str) -> Call {
    Call::new("POST", &format!("/v1/rejected/{record}/retry"))
}

fn is_kept(addr: SocketAddr, record: &str) -> bool {
    Call::get(&format!("/v1/rejected/{record}")).to(addr).status == 200
}

#[test]
fn a_rejected_record_is_delivered_once_when_what_was_wrong_is_mended() {
    let backend = need!(Backend::kafka());
    let Backend::Kafka(postgres, kafka) = &backend else { unreachable!() };
    let receiver = Receiver::start();
    let door = member(&backend, "api").start();
    let worker = member(&backend, "worker").env("TIDEGATE__DISPATCH__MAX_EVENT", "10KiB").start();
    let addr = door.addr();
    subscribe(addr, &receiver.url("/default"), json!({}));
    wait_until_shared(&[&worker]);
    let body = json!({"id": "large", "type": "a.b", "data": "x".repeat(20_000)}).to_string();
    kafka.produce(0, body.as_bytes(), (b"any", b"v"));
    kafka.produce(1, br#"{"id": "stray", "type": "a.b", "data": 1}"#, (b"tidegate-tenant", b"ghost"));
    kafka.produce(2, br#"{"id": "broken", "type": "a.b", "da"#, (b"any", b"v"));
    let [large, stray, broken] = ["event_too_large", "bad_tenant", "unreadable"].map(|reason| rejected(addr, reason));

    // By a process that does not read from Kafka, and dies between the event and the record: the next one finds both.
    let aside = replica(&Backend::Sqlite).env("DATABASE_URL", &postgres.url()).env("TIDEGATE__SERVER__ROLES", "api");
    let mortal = aside.env("TIDEGATE_CRASH_AT", "persist.after:1").start();
    let died = retry(&large).try_to(mortal.addr());
    assert!(died.is_err(), "{died:?}");
    let aside = mortal.wait_for_crash(LATER).env("TIDEGATE_CRASH_AT", "").start();
    wait_for_status(addr, "large", "delivered");
    assert!(is_kept(addr, &large));
    let answer = retry(&large).to(aside.addr()).expect(202);
    assert_eq!((&answer["id"], &answer["status"]), (&json!("large"), &json!("queued")));
    assert!(!is_kept(addr, &large));
    retry(&large).to(addr).expect_problem(404, "not_found");

    let missing = retry(&stray).to(addr).expect_problem(422, "bad_tenant");
    assert!(missing["detail"].as_str().unwrap().contains("there is no tenant \"ghost\""), "{missing}");
    Call::post("/admin/tenants", json!({"id": "ghost", "name": "Ghost"})).to(addr).expect(201);
    let settings = json!({"url": receiver.url("/ghost"), "event_types": ["**"]});
    Call::post("/v1/subscriptions", settings).header("x-tenant", "ghost").to(addr).expect(201);
    // It was nobody's when it was read, and so it is the admin's, also for the tenant that there is now.
    let made = Call::post("/admin/tenants/ghost/keys", json!({"name": "its own"})).to(addr).expect(201);
    retry(&stray).key(made["key"].as_str().unwrap()).to(addr).expect_problem(404, "not_found");
    retry(&stray).to(addr).expect(202);
    assert!(!is_kept(addr, &stray));

    kafka.produce(3, br#"{"id": "large", "type": "a.b", "data": "another"}"#, (b"any", b"v"));
    let twin = rejected(addr, "id_conflict");
    for (record, status, code) in [(&broken, 422, "unreadable"), (&twin, 409, "id_conflict")] {
        retry(record).to(addr).expect_problem(status, code);
        assert!(is_kept(addr, record), "{code}");
    }
    let calls = receiver.received_blocking(2, LATER);
    let mut calls: Vec<(&str, &str)> = calls.iter().map(|call| (call.path.as_str(), call.id())).collect();
    calls.sort_unstable();
    assert_eq!(calls, [("/default", "large"), ("/ghost", "stray")]);
}
