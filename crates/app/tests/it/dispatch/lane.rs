//! A single event that comes whole and plain is taken in before the router. Nobody can tell but by the clock.

use serde_json::json;
use testkit::receiver::Receiver;

use super::{LATER, replica, send, subscribe, wait_until_all_ended};
use crate::support::{Backend, Call, Client, NOT_PLAIN, Response, Setup, each_queue};

each_queue! {
    an_answer_of_the_lane_is_the_routes_answer_byte_for_byte
}

const JSON: &str = "content-type: application/json\r\n";

/// Without what time and chance change.
fn timeless(answer: &str) -> String {
    let mut text = String::new();
    for line in answer.split("\r\n").filter(|line| !line.starts_with("date: ") && !line.starts_with("content-length: "))
    {
        let (before, after) = line.split_once(r#""created_at":""#).unwrap_or((line, ""));
        text.push_str(before);
        text.push_str(after.split_once('"').map_or("", |(_, rest)| rest));
        text.push('\n');
    }
    text
}

fn an_answer_of_the_lane_is_the_routes_answer_byte_for_byte(backend: &Backend) {
    let receiver = Receiver::start();
    let tidegate = replica(backend).start();
    subscribe(tidegate.addr(), &receiver.url("/"), json!({}));
    // By now in the database also where Kafka has them first.
    for way in ["lane", "route"] {
        send(tidegate.addr(), json!({"id": format!("known-{way}"), "type": "a.b", "data": 1}));
    }
    receiver.received_blocking(2, LATER);
    let all = r#"{"id":"full-WAY","type":"a.b","data":{"n":1.0},"source":"s","ordering_key":"k"}"#;
    for (name, target, headers, body) in [
        ("accepted", "/v1/events", JSON, r#"{"id":"one-WAY","type":"a.b","data":{"n":1}}"#),
        ("everything", "/v1/events", JSON, all),
        ("white space", "/v1/events", "", " {\"id\":\"two-WAY\",\"type\":\"a.b\",\"data\": [ ] }\n"),
        ("a known id", "/v1/events", JSON, r#"{"id":"known-WAY","type":"a.b","data":2}"#),
        ("an array", "/v1/events", JSON, r#"[{"id":"three-WAY","type":"a.b","data":1}]"#),
        ("lines", "/v1/events", "content-type: application/x-ndjson\r\n", r#"{"id":"four-WAY","type":"a.b","data":1}"#),
        ("the short path", "/events", JSON, r#"{"id":"five-WAY","type":"a.b","data":1}"#),
        ("a wrong type", "/v1/events", JSON, r#"{"type":"a b","data":1}"#),
        ("an unknown field", "/v1/events", JSON, r#"{"type":"a.b","data":1,"topic":1}"#),
        ("our own source", "/v1/events", JSON, r#"{"type":"a.b","data":1,"source":"tidegate"}"#),
        ("no JSON", "/v1/events", JSON, "{"),
        ("nothing", "/v1/events", JSON, ""),
        ("another tenant", "/v1/events", "x-tenant: nobody\r\n", r#"{"type":"a.b","data":1}"#),
        ("two", "/v1/events", "x-tenant: default\r\nX-Tenant: nobody\r\n", r#"{"type":"a.b","data":1}"#),
        ("another site", "/v1/events", "origin: http://evil.example\r\n", r#"{"type":"a.b","data":1}"#),
    ] {
        let answer = |way: &str, unplain: &str| {
            let mut client = Client::open(tidegate.addr());
            let body = body.replace("WAY", way);
            // Twice: the second is a repeat, and finds the connection where the first has left it.
            let answers = [0, 1].map(|_| client.ask(target, &format!("{headers}{unplain}"), &body));
            answers.map(|answer| timeless(&answer).replace(&format!("-{way}"), ""))
        };
        assert_eq!(answer("lane", ""), answer("route", NOT_PLAIN), "{name}");
    }
    wait_until_all_ended(tidegate.addr(), 14);
    assert_eq!(receiver.count(), 14, "seven of each way, each of them once");
}

#[test]
fn the_lane_stands_behind_the_same_door() {
    let tidegate = Setup::locked().start();
    let addr = tidegate.addr();
    let make = |role: &str| {
        let made = Call::post("/admin/tenants/default/keys", json!({"name": role, "role": role})).admin().to(addr);
        made.expect(201)["key"].as_str().unwrap().to_owned()
    };
    let (editor, viewer) = (make("editor"), make("viewer"));
    let ask = |headers: &str| Client::open(addr).ask("/v1/events", headers, r#"{"id":"e","type":"a.b","data":1}"#);
    for headers in ["", "authorization: Bearer nonsense\r\n", "x-api-key: tg_x\r\n"] {
        assert!(ask(headers).starts_with("HTTP/1.1 401"), "{headers}");
    }
    assert!(ask(&format!("x-api-key: {viewer}\r\n")).starts_with("HTTP/1.1 403"));
    let event = |key: &str| -> Response { Call::get("/v1/events/e").key(key).to(addr) };
    event(&viewer).expect_problem(404, "not_found");
    assert!(ask(&format!("authorization: Bearer {editor}\r\n")).starts_with("HTTP/1.1 202"));
    event(&viewer).expect(200);
}
