//! Tidegate's own services, health and reflection, and whose keys open what.

use serde_json::json;
use testkit::need;

use super::{Client, SHOULD_RATE_LIMIT, descriptor, envoy};
use crate::support::{ADMIN_KEY, Call, Setup};

const CHECK: &str = "/tidegate.limits.v1.Limits/Check";
const BATCH: &str = "/tidegate.limits.v1.Limits/CheckBatch";
const ENTER: &str = "/tidegate.limits.v1.Gates/Enter";
const EXIT: &str = "/tidegate.limits.v1.Gates/Exit";
const RENEW: &str = "/tidegate.limits.v1.Gates/Renew";
const STATE: &str = "/tidegate.limits.v1.Gates/State";

#[test]
fn checks_answer_as_they_do_over_http() {
    let tidegate = Setup::serve().start();
    let client = need!(Client::connect(tidegate.grpc_addr()));
    let rule = json!({"key": "user:*", "limit": 2, "window": "1h"});
    Call::post("/v1/limits/rules", rule).to(tidegate.addr()).expect(201);
    let check = |key: &str| client.call(CHECK, json!({"key": key}))["ok"].clone();
    let first = check("user:1");
    assert_eq!((&first["allowed"], &first["remaining"]), (&json!(true), &json!("1")), "{first}");
    let http = Call::post("/v1/limits/check", json!({"key": "user:1"})).to(tidegate.addr()).expect(200);
    assert_eq!((&http["allowed"], &http["remaining"], &http["rule"]), (&json!(true), &json!(0), &first["rule"]));
    let third = check("user:1");
    assert_eq!(third["allowed"], false, "{third}");
    assert_ne!(third["retry_after_ms"], "0", "{third}");

    let both = json!([{"key": "user:1"}, {"key": "user:2"}]);
    let atomic = client.call(BATCH, json!({"checks": both, "atomic": true}))["ok"].clone();
    assert_eq!(atomic["allowed"], false, "{atomic}");
    assert_eq!(client.call(CHECK, json!({"key": "user:2", "peek": true}))["ok"]["remaining"], "2", "all or none");
    let each = client.call(BATCH, json!({"checks": both}))["ok"].clone();
    assert_eq!(
        (&each["results"][0]["allowed"], &each["results"][1]["allowed"]),
        (&json!(false), &json!(true)),
        "{each}"
    );

    for (request, code, reason) in [
        (json!({"key": ""}), "INVALID_ARGUMENT", "invalid_field"),
        (json!({"key": "nobody"}), "NOT_FOUND", "no_rule"),
        (json!({"key": "user:1", "cost": "0"}), "INVALID_ARGUMENT", "invalid_field"),
        (json!({"key": "user:1", "cost": "3"}), "INVALID_ARGUMENT", "cost_above_capacity"),
    ] {
        let answer = client.call(CHECK, request.clone());
        assert_eq!((&answer["code"], &answer["reason"]), (&json!(code), &json!(reason)), "{request}: {answer}");
    }
}

#[test]
fn a_shadow_rule_says_what_it_would_have_refused() {
    let tidegate = Setup::serve().start();
    let client = need!(Client::connect(tidegate.grpc_addr()));
    let rule = json!({"key": "new:*", "limit": 1, "window": "1h", "shadow": true});
    Call::post("/v1/limits/rules", rule).to(tidegate.addr()).expect(201);
    for would_refuse in [false, true] {
        let answer = client.call(CHECK, json!({"key": "new:1"}))["ok"].clone();
        assert_eq!((&answer["allowed"], &answer["shadow_denied"]), (&json!(true), &json!(would_refuse)), "{answer}");
    }
    let batch = client.call(BATCH, json!({"checks": [{"key": "new:1"}, {"key": "new:2"}]}))["ok"].clone();
    let denied: Vec<_> = batch["results"].as_array().unwrap().iter().map(|result| &result["shadow_denied"]).collect();
    assert_eq!(denied, [true, false], "{batch}");
}

#[test]
fn gates_answer_as_they_do_over_http_and_share_their_passes() {
    let tidegate = Setup::serve().start();
    let client = need!(Client::connect(tidegate.grpc_addr()));
    let policy =
        json!({"circuit": {"failures": 1, "open_ms": "3600000"}, "concurrency": {"limit": 1}, "lease_ms": "60000"});
    let enter = || client.call(ENTER, json!({"target": "api", "policy": policy}))["ok"].clone();
    let entered = enter();
    let pass = entered["pass"]["pass"].as_str().unwrap_or_else(|| panic!("{entered}"));
    assert_eq!((&entered["policy"], &entered["pass"]["lease_ms"]), (&json!("POLICY_SOURCE_GIVEN"), &json!("60000")));
    assert_eq!(enter()["refused"]["by"], "CONCURRENCY");
    assert_eq!(client.call(RENEW, json!({"target": "api", "pass": pass}))["ok"]["renewed"], true);
    assert_eq!(client.call(STATE, json!({"target": "api"}))["ok"]["held"], 1);
    // One pass, whatever protocol it came by.
    let http = Call::post("/v1/gates/api/exit", json!({"pass": pass, "outcome": "failure"})).to(tidegate.addr());
    assert_eq!(http.expect(200)["counted"], true);
    let exit =
        |pass: &str, outcome: &str| client.call(EXIT, json!({"target": "api", "pass": pass, "outcome": outcome}));
    let again = exit(pass, "OUTCOME_FAILURE");
    assert_eq!(again["ok"]["counted"], false, "{again}");
    assert_eq!(enter()["refused"]["by"], "CIRCUIT");
    assert_eq!(client.call(STATE, json!({"target": "api"}))["ok"]["circuit"]["state"], "open");
    assert_eq!(exit("pass_AAAA", "OUTCOME_SUCCESS")["reason"], "invalid_pass");
    assert_eq!(exit(pass, "OUTCOME_UNSPECIFIED")["code"], "INVALID_ARGUMENT");
    assert_eq!(client.call(ENTER, json!({"target": ""}))["code"], "INVALID_ARGUMENT");
}

/// Somebody who wants `CLOSED` and sends a number of a later version must not get `LOCAL`.
#[test]
fn an_enum_value_that_is_not_known_is_refused_and_never_the_default() {
    let tidegate = Setup::serve().start();
    let client = need!(Client::connect(tidegate.grpc_addr()));
    for (field, number, known) in
        [("algorithm", 99, "GCRA, SLIDING_LOG, "), ("algorithm", -1, "GCRA, "), ("fallback", 77, "LOCAL, OPEN, CLOSED")]
    {
        let mut rate = json!({"limit": "5", "window_ms": "1000"});
        rate[field] = json!(number);
        let answer = client.call(ENTER, json!({"target": "t", "policy": {"rate": rate}}));
        assert_eq!(
            (&answer["code"], &answer["reason"]),
            (&json!("INVALID_ARGUMENT"), &json!("invalid_field")),
            "{answer}"
        );
        let begins = format!("policy.rate.{field}: {number} is not known here: write {known}");
        assert!(answer["message"].as_str().unwrap().starts_with(&begins), "{answer}");
    }
    assert_eq!(client.call(STATE, json!({"target": "t"}))["ok"]["held"], 0);
}

#[test]
fn the_key_says_the_tenant_and_its_scopes_what_it_may() {
    let tidegate = envoy(Setup::locked());
    let client = need!(Client::connect(tidegate.grpc_addr()));
    let key = |tenant: &str, scopes: &[&str]| {
        let call = Call::post(&format!("/admin/tenants/{tenant}/keys"), json!({"name": "k", "scopes": scopes})).admin();
        call.to(tidegate.addr()).expect(201)["key"].as_str().unwrap().to_owned()
    };
    let ask = json!({"domain": "edge", "descriptors": [descriptor("remote_address", "1.2.3.4")]});
    assert_eq!(client.call(SHOULD_RATE_LIMIT, ask.clone())["code"], "UNAUTHENTICATED");
    assert_eq!(client.call_with_key("nonsense", SHOULD_RATE_LIMIT, ask.clone())["reason"], "invalid_key");
    let viewer = key("default", &["limits:read"]);
    assert_eq!(client.call_with_key(&viewer, SHOULD_RATE_LIMIT, ask.clone())["code"], "PERMISSION_DENIED");
    assert_eq!(client.call_with_key(&viewer, STATE, json!({"target": "t"}))["ok"]["held"], 0);
    let checker = key("default", &["limits:check"]);
    assert_eq!(client.call_with_key(&checker, STATE, json!({"target": "t"}))["code"], "PERMISSION_DENIED");
    Call::post("/admin/tenants", json!({"id": "acme", "name": "acme"})).admin().to(tidegate.addr()).expect(201);
    for key in [&checker, &key("acme", &["limits:check"]), ADMIN_KEY] {
        let left = |answer: serde_json::Value| answer["ok"]["statuses"][0]["limit_remaining"].clone();
        let first = left(client.call_with_key(key, SHOULD_RATE_LIMIT, ask.clone()));
        // The admin key acts for the default tenant, whose key has been here before.
        assert_eq!(first, if key == ADMIN_KEY { 0 } else { 1 });
    }
}

#[test]
fn health_and_reflection_need_no_key() {
    let tidegate = Setup::locked().start();
    let client = need!(Client::connect(tidegate.grpc_addr()));
    for service in ["", "envoy.service.ratelimit.v3.RateLimitService", "tidegate.limits.v1.Gates"] {
        let answer = client.call("/grpc.health.v1.Health/Check", json!({"service": service}));
        assert_eq!(answer["ok"]["status"], "SERVING", "{answer}");
    }
    assert_eq!(client.call("/grpc.health.v1.Health/Check", json!({"service": "nothing"}))["code"], "NOT_FOUND");
    let services = client.say(&json!({"services": true}))["services"].to_string();
    for service in
        ["envoy.service.ratelimit.v3.RateLimitService", "tidegate.limits.v1.Limits", "tidegate.limits.v1.Gates"]
    {
        assert!(services.contains(service), "{services}");
    }
}
