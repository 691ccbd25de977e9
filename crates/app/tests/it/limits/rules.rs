//! Rules from the API: ETags, tenants, and replicas that follow within a second.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::wait_until;

use super::{call, check};
use crate::support::{Backend, Call, MASTER_KEY, SOON, Setup, each_backend};

each_backend! {
    two_writers_notice_each_other
    a_precondition_is_heeded_by_every_method
    a_rule_holds_at_once_and_until_it_is_deleted
    the_audit_says_who_changed_a_rule
}

fn rule(limit: u64) -> Value {
    json!({"key": "user:*", "limit": limit, "window": "1h", "algorithm": "fixed_window"})
}

fn two_writers_notice_each_other(backend: &Backend) {
    let tidegate = backend.under(Setup::serve()).start();
    let addr = tidegate.addr();
    let put = |condition: Option<(&str, &str)>, limit: u64| {
        let call = Call::new("PUT", "/v1/limits/rules/users");
        let call = match condition {
            Some((name, value)) => call.header(name, value),
            None => call,
        };
        call.json(rule(limit)).to(addr)
    };
    let made = put(Some(("if-none-match", "*")), 1);
    let first = made.header("etag").unwrap().to_owned();
    made.expect(201);
    put(Some(("if-none-match", "*")), 2).expect_problem(412, "precondition_failed");
    let replaced = put(Some(("if-match", &first)), 3);
    let second = replaced.header("etag").unwrap().to_owned();
    assert_eq!(replaced.expect(200)["limit"], 3);
    assert_ne!(first, second);
    put(Some(("if-match", &first)), 4).expect_problem(412, "precondition_failed");
    put(Some(("if-match", "3")), 4).expect_problem(400, "invalid_header");
    let unchanged = Call::get("/v1/limits/rules/users").header("if-none-match", &second).to(addr);
    assert_eq!((unchanged.status, unchanged.body.as_str()), (304, ""));
    let stale = Call::new("DELETE", "/v1/limits/rules/users").header("if-match", &first).to(addr);
    stale.expect_problem(412, "precondition_failed");
    Call::new("DELETE", "/v1/limits/rules/users").header("if-match", &second).to(addr).expect(204);
    Call::get("/v1/limits/rules/users").to(addr).expect_problem(404, "not_found");
    put(Some(("if-match", &second)), 4).expect_problem(412, "precondition_failed");
    Call::get("/v1/limits/rules/users").to(addr).expect_problem(404, "not_found");
}

fn a_precondition_is_heeded_by_every_method(backend: &Backend) {
    let tidegate = backend.under(Setup::serve()).start();
    let addr = tidegate.addr();
    let to = |method: &str, name: &str, value: &str| {
        let call = Call::new(method, "/v1/limits/rules/users").header(name, value);
        if method == "PUT" { call.json(rule(1)).to(addr) } else { call.to(addr) }
    };
    to("PUT", "if-match", "*").expect_problem(412, "precondition_failed");
    let made = to("PUT", "if-none-match", "\"1\"");
    let tag = made.header("etag").unwrap().to_owned();
    made.expect(201);
    let post = Call::post("/v1/limits/rules", rule(1)).header("if-match", &tag).to(addr);
    post.expect_problem(412, "precondition_failed");
    assert_eq!(Call::get("/v1/limits/rules").to(addr).expect(200)["data"].as_array().unwrap().len(), 1);
    to("PUT", "if-none-match", &tag).expect_problem(412, "precondition_failed");
    assert_eq!(to("GET", "if-none-match", &format!("\"x\", W/{tag}")).status, 304);
    let replaced = to("PUT", "if-match", &format!("\"x\", {tag}"));
    let tag = replaced.header("etag").unwrap().to_owned();
    replaced.expect(200);
    to("DELETE", "if-none-match", "*").expect_problem(412, "precondition_failed");
    to("DELETE", "if-match", "\"x\", \"0\"").expect_problem(412, "precondition_failed");
    to("PUT", "if-match", "*").expect(200);
    to("DELETE", "if-match", &tag).expect_problem(412, "precondition_failed");
    to("DELETE", "if-match", "*").expect(204);
    to("DELETE", "if-match", "*").expect_problem(404, "not_found");
}

fn a_rule_holds_at_once_and_until_it_is_deleted(backend: &Backend) {
    let tidegate = backend.under(Setup::serve()).start();
    let addr = tidegate.addr();
    call(addr, "/v1/limits/check", json!({"key": "user:1"})).expect_problem(404, "no_rule");
    let made = call(addr, "/v1/limits/rules", rule(1)).expect(201);
    let id = made["id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("rul_"), "{made}");
    assert_eq!(check(addr, "user:1")["rule"], id.as_str());
    assert_eq!(check(addr, "user:1")["allowed"], false);
    Call::new("PUT", &format!("/v1/limits/rules/{id}")).json(rule(2)).to(addr).expect(200);
    assert_eq!(check(addr, "user:1")["allowed"], true, "a raised limit lets more pass and forgets nothing");
    assert_eq!(check(addr, "user:1")["allowed"], false);
    let listed = Call::get("/v1/limits/rules").to(addr).expect(200);
    assert_eq!(listed["data"][0]["id"], id.as_str());
    let taken = json!({"id": id, "key": "a", "limit": 1, "window": "1s"});
    call(addr, "/v1/limits/rules", taken).expect_problem(409, "rule_exists");
    Call::new("DELETE", &format!("/v1/limits/rules/{id}")).to(addr).expect(204);
    call(addr, "/v1/limits/check", json!({"key": "user:1"})).expect_problem(404, "no_rule");
}

fn the_audit_says_who_changed_a_rule(backend: &Backend) {
    let tidegate = backend.under(Setup::serve()).start();
    let addr = tidegate.addr();
    let put = |id: &str, limit: u64| Call::new("PUT", &format!("/v1/limits/rules/{id}")).json(rule(limit)).to(addr);
    let made = call(addr, "/v1/limits/rules", rule(1)).expect(201);
    let id = made["id"].as_str().unwrap();
    put("users", 1).expect(201);
    put("users", 2).expect(200);
    call(addr, "/v1/limits/rules", json!({"id": "users", "key": "a", "limit": 1, "window": "1s"})).expect(409);
    put("users", 0).expect(422);
    Call::new("DELETE", "/v1/limits/rules/users").to(addr).expect(204);
    Call::new("DELETE", "/v1/limits/rules/users").to(addr).expect(404);
    let expected =
        [("rule.created", id), ("rule.created", "users"), ("rule.changed", "users"), ("rule.deleted", "users")];
    assert_eq!(tidegate.audit(), expected.map(|(action, target)| format!("dev {action} {target}")));
}

/// Each pattern that looks for something behind its star is tried on every key that begins so.
#[test]
fn so_many_patterns_may_have_to_be_tried_on_one_key() {
    let tidegate = Setup::serve().start();
    let addr = tidegate.addr();
    let make = |key: &str| call(addr, "/v1/limits/rules", json!({"key": key, "limit": 1, "window": "1s"}));
    for number in 0..200 {
        make(&format!("user:*:{number}")).expect(201);
    }
    let refused = make("user:*:more").expect_problem(409, "too_many_patterns");
    assert_eq!(refused["field"], "key", "{refused}");
    let last = make("user:7*").expect(201);
    make("team:*:0").expect(201);
    let put = |key: &str| {
        let path = format!("/v1/limits/rules/{}", last["id"].as_str().unwrap());
        Call::new("PUT", &path).json(json!({"key": key, "limit": 1, "window": "1s"})).to(addr)
    };
    put("user:7*").expect(200);
    put("user:7*:more").expect_problem(409, "too_many_patterns");
}

/// Every replica holds every rule in memory, so no tenant may have any number of overrides.
#[test]
fn the_rules_of_a_tenant_may_be_so_large_together() {
    let tidegate = Setup::serve().start();
    let addr = tidegate.addr();
    let overrides: Value = (0..2_000).map(|number| (format!("user:{number:0>400}"), json!({"limit": 1}))).collect();
    let put = |id: u32| {
        let mut large = rule(1);
        large["overrides"] = overrides.clone();
        Call::new("PUT", &format!("/v1/limits/rules/{id}")).json(large).to(addr)
    };
    for id in 0..4 {
        put(id).expect(201);
    }
    put(4).expect_problem(409, "too_many_rules");
    put(3).expect(200);
    call(addr, "/v1/limits/rules", rule(1)).expect(201);
    Call::new("DELETE", "/v1/limits/rules/3").to(addr).expect(204);
    put(4).expect(201);
}

#[test]
fn a_wrong_rule_is_told_its_field() {
    let tidegate = Setup::serve().start();
    let cases: &[(Value, &str)] = &[
        (json!({"key": "", "limit": 1, "window": "1s"}), "key"),
        (json!({"key": "a", "limit": 0, "window": "1s"}), "limit"),
        (json!({"key": "a", "limit": 1, "window": "0s"}), "window"),
        (json!({"key": "a", "limit": 1, "window": "1 fortnight"}), "window"),
        (json!({"key": "a", "limit": 1, "window": "1000years"}), "window"),
        (json!({"key": "a", "limit": 1, "window": "1ns"}), "window"),
        (
            json!({"key": "a*", "limit": 9, "window": "1s", "cost": 5, "overrides": {"ab": {"limit": 4}}}),
            "overrides.ab.limit",
        ),
        (json!({"key": "a", "limit": 1, "window": "1s", "algorithm": "magic"}), "algorithm"),
        (json!({"key": "a", "limit": 1, "window": "1s", "algorithm": 5}), "algorithm"),
        (json!({"key": "a", "limit": 1, "window": "1s", "algorithm": "fixed_window", "burst": 2}), "burst"),
        (json!({"key": "a", "limit": 1, "window": "1s", "cost": 2}), "cost"),
        (json!({"key": "a", "limit": 1, "window": "1s", "fallback": "maybe"}), "fallback"),
        (json!({"key": "a", "limit": 1, "window": "1s", "limt": 2}), "limt"),
        (json!({"key": "a*", "limit": 1, "window": "1s", "overrides": {"b": {"limit": 1}}}), "overrides.b"),
        (json!({"key": "a*", "limit": 1, "window": "1s", "overrides": {"ab": [1]}}), "overrides.ab"),
        (json!({"key": "a", "limit": 1, "calendar": ["day", "UTC"]}), "calendar"),
        (json!({"key": "a", "limit": 1}), "window"),
        (
            json!({"key": "a", "limit": 1, "calendar": {"every": "month", "time_zone": "Mars/Olympus"}}),
            "calendar.time_zone",
        ),
        (json!({"key": "a", "limit": 1, "calendar": {"every": "fortnight"}}), "calendar.every"),
        (json!({"key": "a", "limit": 1, "window": "1s", "calendar": {"every": "day"}}), "window"),
        (json!({"key": "a", "limit": 1, "algorithm": "gcra", "calendar": {"every": "day"}}), "algorithm"),
        (json!({"id": "No Name", "key": "a", "limit": 1, "window": "1s"}), "id"),
    ];
    for (rule, field) in cases {
        let problem = call(tidegate.addr(), "/v1/limits/rules", rule.clone()).expect_problem(422, "invalid_field");
        assert_eq!(problem["field"], *field, "{rule}: {problem}");
    }
}

#[test]
fn all_replicas_follow_a_rule_within_a_second() {
    let postgres = testkit::need!(testkit::postgres());
    let replica = || Setup::serve().env("DATABASE_URL", &postgres.url()).env("TIDEGATE_MASTER_KEY", MASTER_KEY);
    let replicas = [replica().start(), replica().start(), replica().start()];
    let limit_of = |limit: u64, key: &str| {
        let began = Instant::now();
        for replica in &replicas {
            wait_until(SOON, "the rule to be followed", || {
                let answer = call(replica.addr(), "/v1/limits/peek", json!({"key": key}));
                answer.status == 200 && answer.json()["limit"] == limit
            });
        }
        began.elapsed()
    };
    call(replicas[0].addr(), "/v1/limits/rules", json!({"id": "a", "key": "*", "limit": 1, "window": "1s"}))
        .expect(201);
    let mut took = [2, 3, 4, 5, 6].map(|limit| {
        let changed = json!({"key": "*", "limit": limit, "window": "1s"});
        Call::new("PUT", "/v1/limits/rules/a").json(changed).to(replicas[1].addr()).expect(200);
        limit_of(limit, "any")
    });
    // The third of five: a machine that stands still for a moment delays one or two.
    took.sort_unstable();
    assert!(took[2] < Duration::from_secs(1), "{took:?}");
}

#[test]
fn a_tenants_rules_and_counters_are_its_own() {
    let tidegate = Setup::locked().start();
    let addr = tidegate.addr();
    Call::post("/admin/tenants", json!({"id": "acme", "name": "Acme"})).admin().to(addr).expect(201);
    let as_acme = |call: Call| call.admin().header("x-tenant", "acme").to(addr);
    as_acme(Call::post("/v1/limits/rules", json!({"id": "all", "key": "*", "limit": 1, "window": "1h"}))).expect(201);
    as_acme(Call::post("/v1/limits/check", json!({"key": "k"}))).expect(200);
    Call::post("/v1/limits/check", json!({"key": "k"})).admin().to(addr).expect_problem(404, "no_rule");
    Call::get("/v1/limits/rules/all").admin().to(addr).expect_problem(404, "not_found");
    Call::post("/v1/limits/rules", json!({"id": "all", "key": "*", "limit": 1, "window": "1h"}))
        .admin()
        .to(addr)
        .expect(201);
    let own = Call::post("/v1/limits/check", json!({"key": "k"})).admin().to(addr).expect(200);
    assert_eq!(own["allowed"], true, "acme's count is not mine");
}

#[test]
fn a_calendar_quota_counts_to_the_end_of_the_day_there() {
    let tidegate = Setup::serve().start();
    let addr = tidegate.addr();
    for zone in ["UTC", "Asia/Kolkata", "America/New_York"] {
        let quota = json!({"key": format!("{zone}:*"), "limit": 2, "calendar": {"every": "day", "time_zone": zone}});
        let made = call(addr, "/v1/limits/rules", quota).expect(201);
        assert_eq!((&made["algorithm"], &made["calendar"]["time_zone"]), (&json!("fixed_window"), &json!(zone)));
        let key = format!("{zone}:1");
        let allowed = [(); 3].map(|()| check(addr, &key)["allowed"].as_bool().unwrap());
        let refused = check(addr, &key);
        let day_ms = 86_400_000;
        assert!(refused["reset_after_ms"].as_u64().unwrap() <= day_ms + 3_600_000, "{refused}");
        // Midnight may pass between the checks; then one more is allowed.
        assert!(allowed.starts_with(&[true, true]), "{allowed:?}");
    }
}
