//! Checks that come whole and plain are answered before the router. Nobody can tell but by the clock: the same bytes, the
//! same mistakes, the same counts.

use serde_json::json;

use super::{remaining, with_rules};
use crate::support::{Call, Client, NOT_PLAIN, Setup};

const RULES: &str = r#"
[[rule]]
key = "roomy:*"
algorithm = "fixed_window"
limit = 1000
window = "1h"

[[rule]]
key = "tight:*"
algorithm = "fixed_window"
limit = 1
window = "1h"

[[rule]]
key = "shadow:*"
limit = 1
window = "1h"
shadow = true
"#;

/// Without what time changes: the date, and how long until the window ends.
fn timeless(answer: &str) -> String {
    let mut text = String::new();
    for line in answer.split("\r\n").filter(|line| !line.starts_with("date: ")) {
        let mut letters = line.chars().peekable();
        while let Some(letter) = letters.next() {
            text.push(letter);
            let is_time = ["t=", "after_ms\":", "retry-after: ", "x-ratelimit-reset: ", "content-length: "]
                .iter()
                .any(|name| text.ends_with(name));
            while is_time && letters.next_if(char::is_ascii_digit).is_some() {}
        }
        text.push('\n');
    }
    text
}

#[test]
fn an_answer_of_the_lane_is_the_routes_answer_byte_for_byte() {
    let tidegate = with_rules(RULES);
    let json = "content-type: application/json\r\n";
    for (name, target, headers, body) in [
        ("allowed", "/v1/limits/check", json, r#"{"key":"roomy:KEY"}"#),
        ("without a content type", "/v1/limits/check", "", r#"{"key":"roomy:KEY","cost":3}"#),
        ("denied", "/v1/limits/check", json, r#"{"key":"tight:KEY"}"#),
        ("denied with a status", "/v1/limits/check?on_deny=429", json, r#"{"key":"tight:KEY"}"#),
        ("shadow", "/v1/limits/check", json, r#"{"key":"shadow:KEY"}"#),
        ("another status", "/v1/limits/check?on_deny=500", json, r#"{"key":"roomy:KEY"}"#),
        ("another tenant", "/v1/limits/check", "x-tenant: nobody\r\n", r#"{"key":"roomy:KEY"}"#),
        ("two", "/v1/limits/check", "x-tenant: default\r\nX-Tenant: nobody\r\n", r#"{"key":"roomy:KEY"}"#),
        ("no rule", "/v1/limits/check", json, r#"{"key":"nothing"}"#),
        ("no key", "/v1/limits/check", json, r#"{"key":""}"#),
        ("no cost", "/v1/limits/check", json, r#"{"key":"roomy:KEY","cost":0}"#),
        ("too much", "/v1/limits/check", json, r#"{"key":"roomy:KEY","cost":1001}"#),
        ("unknown field", "/v1/limits/check", json, r#"{"key":"roomy:KEY","kost":1}"#),
        ("an array", "/v1/limits/check", json, r#"["roomy:KEY",1]"#),
        ("no JSON", "/v1/limits/check", json, "{"),
        ("nothing", "/v1/limits/check", json, ""),
        ("another type", "/v1/limits/check", "content-type: text/xml\r\n", r#"{"key":"roomy:KEY"}"#),
        ("another site", "/v1/limits/check", "origin: http://evil.example\r\n", r#"{"key":"roomy:KEY"}"#),
    ] {
        let mut answers = Vec::new();
        for (way, unplain) in [("lane", ""), ("route", NOT_PLAIN)] {
            let mut client = Client::open(tidegate.addr());
            let body = body.replace("KEY", &format!("{}-{way}", name.replace(' ', "-")));
            // Twice: the second is denied, or finds the connection where the first has left it.
            for _ in 0..2 {
                let answer = client.ask(target, &format!("{headers}{unplain}"), &body);
                answers.push(timeless(&answer).replace("-lane", "").replace("-route", ""));
            }
        }
        assert_eq!(answers[..2], answers[2..], "{name}");
    }
}

#[test]
fn mistakes_in_the_lane_count_nothing_and_its_checks_are_counted_once() {
    let tidegate = with_rules(RULES);
    let (addr, check) = (tidegate.addr(), "/v1/limits/check");
    for body in [
        r#"{"key":"roomy:1","cost":0}"#,
        r#"{"key":"roomy:1","cost":1001}"#,
        r#"{"key":"roomy:1","x":1}"#,
        r#"["roomy:1",1]"#,
    ] {
        assert!(Client::open(addr).ask(check, "", body).starts_with("HTTP/1.1 422"));
    }
    assert_eq!(remaining(addr, "roomy:1"), 1000);
    let mut client = Client::open(addr);
    for left in [999, 998] {
        let answer = client.ask(check, "", r#"{"key":"roomy:1"}"#);
        assert!(answer.contains(&format!("x-ratelimit-remaining: {left}\r\n")), "{answer}");
    }
    assert!(client.ask("/v1/limits/peek", "", r#"{"key":"roomy:1"}"#).contains("x-ratelimit-remaining: 998\r\n"));
    assert!(client.ask(check, "", r#"{"key":"roomy:1"}"#).contains("x-ratelimit-remaining: 997\r\n"));
    assert_eq!(remaining(addr, "roomy:1"), 997);
    let metrics = Call::get("/metrics").to(tidegate.ops_addr()).body;
    let requests = r#"tidegate_http_requests_total{method="POST",route="/v1/limits/check",status="2xx"} 3"#;
    assert!(metrics.contains(requests), "{metrics}");
}

#[test]
fn the_lane_stands_behind_the_same_door() {
    let tidegate = Setup::locked().file("rules.toml", RULES).env("TIDEGATE__LIMITS__RULES_FILE", "rules.toml").start();
    let addr = tidegate.addr();
    let make = |role: &str| {
        let made =
            Call::post("/admin/tenants/default/keys", json!({"name": role, "role": role})).admin().to(addr).expect(201);
        (made["id"].as_str().unwrap().to_owned(), made["key"].as_str().unwrap().to_owned())
    };
    let ((id, key), (_, viewer)) = (make("editor"), make("viewer"));
    let ask = |client: &mut Client, headers: &str| client.ask("/v1/limits/check", headers, r#"{"key":"roomy:1"}"#);
    for headers in ["", "authorization: Bearer nonsense\r\n", "authorization: Basic eDp5\r\n", "x-api-key: tg_x\r\n"] {
        let answer = ask(&mut Client::open(addr), headers);
        assert!(answer.starts_with("HTTP/1.1 401"), "{headers}{answer}");
    }
    assert!(ask(&mut Client::open(addr), &format!("x-api-key: {viewer}\r\n")).starts_with("HTTP/1.1 403"));
    let mut client = Client::open(addr);
    for headers in [format!("authorization: Bearer {key}\r\n"), format!("X-API-Key: {key}\r\n")] {
        assert!(ask(&mut client, &headers).starts_with("HTTP/1.1 200"));
    }
    Call::new("DELETE", &format!("/admin/tenants/default/keys/{id}")).admin().to(addr).expect(204);
    assert!(ask(&mut client, &format!("x-api-key: {key}\r\n")).starts_with("HTTP/1.1 401"), "a revoked key");
}
