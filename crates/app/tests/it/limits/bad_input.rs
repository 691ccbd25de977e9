//! Bad input: a problem with a stable code, the field and the fix; and nothing is counted.

use serde_json::{Value, json};

use super::{call, remaining, with_rules};
use crate::support::Call;

const RULES: &str = "[[rule]]\nkey = \"k:*\"\nlimit = 5\nwindow = \"1h\"\n";

#[test]
fn every_mistake_in_a_check_has_its_code_and_field_and_counts_nothing() {
    let tidegate = with_rules(RULES);
    let addr = tidegate.addr();
    let cases: &[(Value, u16, &str, Option<&str>)] = &[
        (json!({"key": ""}), 422, "invalid_field", Some("key")),
        (json!({"key": "k".repeat(401)}), 422, "invalid_field", Some("key")),
        (json!({"key": "other"}), 404, "no_rule", Some("key")),
        (json!({"key": "k:1", "cost": 0}), 422, "invalid_field", Some("cost")),
        (json!({"key": "k:1", "cost": -1}), 422, "invalid_field", Some("cost")),
        (json!({"key": "k:1", "cost": 1.5}), 422, "invalid_field", Some("cost")),
        (json!({"key": "k:1", "cost": 6}), 422, "cost_above_capacity", Some("cost")),
        (json!({"key": "k:1", "cots": 1}), 422, "invalid_field", Some("cots")),
        (json!({"key": 7}), 422, "invalid_field", Some("key")),
        (json!({}), 422, "invalid_field", Some("key")),
        (json!([]), 422, "invalid_field", None),
        (json!(["k:1", 1]), 422, "invalid_field", None),
        (json!("k:1"), 422, "invalid_field", None),
    ];
    for (body, status, code, field) in cases {
        for path in ["/v1/limits/check", "/v1/limits/peek"] {
            let problem = call(addr, path, body.clone()).expect_problem(*status, code);
            assert_eq!(problem["field"].as_str(), *field, "{path} {body}: {problem}");
        }
    }
    for body in ["", "{", "nope", "{\"key\": \"k:1\"} x", "\u{0}"] {
        let call = Call::new("POST", "/v1/limits/check").body("application/json", body);
        call.to(addr).expect_problem(400, "invalid_json");
    }
    let text = Call::new("POST", "/v1/limits/check").body("text/plain", "{}").to(addr);
    text.expect_problem(415, "unsupported_media_type");
    call(addr, "/v1/limits/check?on_deny=500", json!({"key": "k:1"})).expect_problem(422, "invalid_field");
    call(addr, "/v1/limits/check?dry=1", json!({"key": "k:1"})).expect_problem(400, "invalid_query");
    assert_eq!(remaining(addr, "k:1"), 5);
}

#[test]
fn one_wrong_check_spoils_its_batch_and_nothing_is_counted() {
    let tidegate = with_rules(RULES);
    let addr = tidegate.addr();
    for atomic in [false, true] {
        let batch = |checks: Value| call(addr, "/v1/limits/check-batch", json!({"checks": checks, "atomic": atomic}));
        let problem = batch(json!([{"key": "k:1"}, {"key": ""}])).expect_problem(422, "invalid_field");
        assert_eq!(problem["field"], "checks[1].key");
        let problem = batch(json!([{"key": "k:1"}, {"key": "other"}])).expect_problem(404, "no_rule");
        assert_eq!(problem["field"], "checks[1].key");
        let problem =
            batch(json!([{"key": "k:1"}, {"key": "k:2", "cost": 6}])).expect_problem(422, "cost_above_capacity");
        assert_eq!(problem["field"], "checks[1].cost");
        let problem = batch(json!([{"key": "k:1"}, ["k:1", 1]])).expect_problem(422, "invalid_field");
        assert_eq!(
            (&problem["field"], &problem["detail"]),
            (&json!("checks[1]"), &json!("invalid type: array, expected an object"))
        );
        assert_eq!(batch(json!([])).expect_problem(422, "invalid_field")["field"], "checks");
        let many: Vec<Value> = (0..if atomic { 17 } else { 1001 }).map(|n| json!({"key": format!("k:{n}")})).collect();
        batch(json!(many)).expect_problem(422, "too_many_keys");
    }
    let twice = json!({"checks": [{"key": "k:1"}, {"key": "k:1"}], "atomic": true});
    let problem = call(addr, "/v1/limits/check-batch", twice).expect_problem(422, "same_key_twice");
    assert_eq!(problem["field"], "checks[1].key");
    let huge: Vec<Value> = (0..100_000).map(|n| json!({"key": format!("k:{n}")})).collect();
    call(addr, "/v1/limits/check-batch", json!({"checks": huge})).expect_problem(413, "body_too_large");
    assert_eq!(remaining(addr, "k:1"), 5);
}

#[test]
fn a_hundred_thousand_keys_in_a_body_that_is_allowed_are_still_too_many() {
    let tidegate = crate::support::Setup::serve()
        .file("rules.toml", RULES)
        .env("TIDEGATE__LIMITS__RULES_FILE", "rules.toml")
        .env("TIDEGATE__SERVER__MAX_BODY", "64MiB")
        .start();
    let huge: Vec<Value> = (0..100_000).map(|n| json!({"key": format!("k:{n}")})).collect();
    let problem = call(tidegate.addr(), "/v1/limits/check-batch", json!({"checks": huge}));
    assert_eq!(problem.expect_problem(422, "too_many_keys")["field"], "checks");
    assert_eq!(remaining(tidegate.addr(), "k:1"), 5);
}

#[test]
fn a_key_without_the_scope_may_not() {
    use crate::support::Setup;
    let tidegate = Setup::locked().file("rules.toml", RULES).env("TIDEGATE__LIMITS__RULES_FILE", "rules.toml").start();
    let addr = tidegate.addr();
    let made = Call::post("/admin/tenants/default/keys", json!({"name": "reader", "scopes": ["limits:read"]}));
    let key = made.admin().to(addr).expect(201)["key"].as_str().unwrap().to_owned();
    let refused = Call::post("/v1/limits/check", json!({"key": "k:1"})).key(&key).to(addr);
    refused.expect_problem(403, "missing_scope");
    Call::get("/v1/limits/rules").key(&key).to(addr).expect(200);
    let rule = json!({"key": "a", "limit": 1, "window": "1s"});
    Call::post("/v1/limits/rules", rule).key(&key).to(addr).expect_problem(403, "missing_scope");
    Call::new("DELETE", "/v1/limits/keys/k:1").key(&key).to(addr).expect_problem(403, "missing_scope");
}
