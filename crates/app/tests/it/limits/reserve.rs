//! Reservations: taken at once, corrected once, and given back by themselves whichever replica dies.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::wait_until;

use super::{call, remaining, with_rules};
use crate::support::{SOON, Setup};

const RULES: &str = "[[rule]]\nkey = \"tokens:*\"\nlimit = 100\nwindow = \"1h\"\nalgorithm = \"token_bucket\"\n";

fn reserve(addr: std::net::SocketAddr, body: Value) -> Value {
    call(addr, "/v1/limits/reserve", body).expect(200)
}

#[test]
fn a_reservation_is_settled_once_and_settling_again_changes_nothing() {
    let tidegate = with_rules(RULES);
    let addr = tidegate.addr();
    let made = reserve(addr, json!({"key": "tokens:a/ä", "cost": 80, "expires_in": "60s"}));
    assert_eq!((&made["allowed"], &made["expires_in_ms"]), (&json!(true), &json!(60_000)), "{made}");
    let refused = reserve(addr, json!({"key": "tokens:a/ä", "cost": 30}));
    assert_eq!((&refused["allowed"], &refused["id"]), (&json!(false), &json!(null)));
    let settle = |cost: Value| call(addr, "/v1/limits/settle", json!({"id": made["id"], "cost": cost}));
    let settled = settle(json!(25)).expect(200);
    assert_eq!(
        (&settled["outcome"], &settled["cost"], &settled["remaining"]),
        (&json!("settled"), &json!(25), &json!(75))
    );
    let again = settle(json!(99)).expect(200);
    assert_eq!((&again["outcome"], &again["cost"]), (&json!("again"), &json!(25)));
    assert_eq!(remaining(addr, "tokens:a/ä"), 75);
    let cancelled = reserve(addr, json!({"key": "tokens:b", "cost": 60}));
    call(addr, "/v1/limits/settle", json!({"id": cancelled["id"], "outcome": "cancel"})).expect(200);
    assert_eq!(remaining(addr, "tokens:b"), 100);
}

#[test]
fn a_shadow_rule_that_is_over_its_limit_still_gives_reservations_that_can_be_settled() {
    let tidegate = with_rules(&format!("{RULES}shadow = true\n"));
    let addr = tidegate.addr();
    reserve(addr, json!({"key": "tokens:s", "cost": 80}));
    for settle in [json!({"cost": 30}), json!({"outcome": "cancel"})] {
        let made = reserve(addr, json!({"key": "tokens:s", "cost": 50, "expires_in": "9s"}));
        assert_eq!((&made["allowed"], &made["shadow_denied"]), (&json!(true), &json!(true)), "{made}");
        assert_eq!(made["expires_in_ms"], 9_000, "{made}");
        let mut body = settle;
        body["id"] = made["id"].clone();
        let settled = call(addr, "/v1/limits/settle", body).expect(200);
        assert_eq!((&settled["outcome"], &settled["cost"]), (&json!("settled"), &json!(0)), "{settled}");
        assert_eq!(remaining(addr, "tokens:s"), 20, "what would have been refused is never charged");
    }
}

#[test]
fn a_wrong_reservation_or_settlement_is_a_problem() {
    let tidegate = with_rules(RULES);
    let addr = tidegate.addr();
    let made = reserve(addr, json!({"key": "tokens:a", "cost": 10}));
    let cases: &[(&str, Value, u16, &str)] = &[
        ("reserve", json!({"key": "tokens:a", "cost": 101}), 422, "cost_above_capacity"),
        ("reserve", json!({"key": "tokens:a", "cost": 0}), 422, "invalid_field"),
        ("reserve", json!({"key": "tokens:a", "cost": 1, "expires_in": "2h"}), 422, "invalid_field"),
        ("reserve", json!({"key": "tokens:a", "cost": 1, "ttl": "2m"}), 422, "invalid_field"),
        ("reserve", json!({"key": "other", "cost": 1}), 404, "no_rule"),
        ("settle", json!({"id": "rsv_nonsense", "cost": 1}), 404, "no_reservation"),
        ("settle", json!({"id": "", "cost": 1}), 404, "no_reservation"),
        ("settle", json!({"id": format!("rsv_l{}dG9rZW5zOmE", "0".repeat(32)), "cost": 1}), 404, "no_reservation"),
        ("settle", json!({"id": format!("rsv_n{}dG9rZW5zOmE", "x".repeat(32)), "cost": 1}), 404, "no_reservation"),
        ("settle", json!({"id": made["id"]}), 422, "invalid_field"),
        ("settle", json!({"id": made["id"], "cost": 5, "outcome": "cancel"}), 422, "invalid_field"),
        ("settle", json!({"id": made["id"], "cost": -5}), 422, "invalid_field"),
        ("settle", json!({"id": made["id"], "cost": u64::MAX}), 422, "invalid_field"),
        ("settle", json!({"id": made["id"], "cost": 4_294_967_297_u64}), 422, "invalid_field"),
    ];
    for (path, body, status, code) in cases {
        call(addr, &format!("/v1/limits/{path}"), body.clone()).expect_problem(*status, code);
    }
    assert_eq!(remaining(addr, "tokens:a"), 90, "nothing of all this counted");
}

#[test]
fn a_reservation_of_a_killed_replica_is_given_back_within_a_second_of_its_end() {
    let redis = testkit::need!(testkit::redis());
    let replica = || {
        Setup::serve()
            .env("REDIS_URL", &redis.url())
            .env("TIDEGATE__REDIS__PREFIX", redis.prefix())
            // Other tests keep this machine busy: a slow answer is no outage.
            .env("TIDEGATE__REDIS__DEADLINE", "5s")
            .file("rules.toml", RULES)
            .env("TIDEGATE__LIMITS__RULES_FILE", "rules.toml")
    };
    let (dies, lives) = (replica().start(), replica().start());
    let made = reserve(dies.addr(), json!({"key": "tokens:k", "cost": 70, "expires_in": "4s"}));
    let began = Instant::now();
    assert_eq!(made["allowed"], true);
    let settled = reserve(dies.addr(), json!({"key": "tokens:k", "cost": 20, "expires_in": "60s"}));
    drop(dies.kill());
    let body = json!({"id": settled["id"], "cost": 5});
    let by_another = call(lives.addr(), "/v1/limits/settle", body).expect(200);
    assert_eq!((&by_another["outcome"], &by_another["remaining"]), (&json!("settled"), &json!(25)));
    wait_until(SOON, "the reservation to end", || remaining(lives.addr(), "tokens:k") == 95);
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(3) && took < Duration::from_secs(8), "{took:?}");
    let late = call(lives.addr(), "/v1/limits/settle", json!({"id": made["id"], "cost": 10})).expect(200);
    assert_eq!((&late["outcome"], &late["remaining"]), (&json!("late"), &json!(85)));
}
