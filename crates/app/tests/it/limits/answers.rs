//! What a caller is told: in the body, in the headers, and in a batch.

use serde_json::json;

use super::{call, check, remaining, with_rules};
use crate::support::Call;

const RULES: &str = r#"
[[rule]]
id = "login"
key = "login:*"
algorithm = "fixed_window"
limit = 2
window = "1h"

[[rule]]
key = "roomy"
algorithm = "gcra"
limit = 100
window = "1m"

[[rule]]
key = "shadow"
limit = 1
window = "1h"
shadow = true
"#;

#[test]
fn a_check_says_what_is_left_and_a_refusal_says_when_to_come_again() {
    let tidegate = with_rules(RULES);
    let first = check(tidegate.addr(), "login:7");
    assert_eq!(first["allowed"], true, "{first}");
    assert_eq!((&first["limit"], &first["remaining"], &first["rule"]), (&json!(2), &json!(1), &json!("login")));
    assert_eq!((&first["retry_after_ms"], &first["degraded"]), (&json!(0), &json!(false)));
    check(tidegate.addr(), "login:7");
    let refused = call(tidegate.addr(), "/v1/limits/check", json!({"key": "login:7"}));
    assert_eq!(refused.status, 200, "a refusal is an answer");
    let number = |name: &str| refused.header(name).unwrap().parse::<u64>().unwrap();
    assert_eq!((number("x-ratelimit-limit"), number("x-ratelimit-remaining")), (2, 0));
    assert!((1..=3600).contains(&number("retry-after")), "{refused:?}");
    assert_eq!(refused.header("ratelimit-policy"), Some(r#""login";q=2;w=3600"#));
    assert_eq!(refused.header("ratelimit").unwrap(), format!(r#""login";r=0;t={}"#, number("x-ratelimit-reset")));
    let refused = refused.expect(200);
    assert_eq!(refused["allowed"], false);
    assert!(refused["retry_after_ms"].as_u64().unwrap() > 0, "{refused}");
    assert_eq!(check(tidegate.addr(), "login:8")["allowed"], true, "every key of a pattern counts by itself");
}

#[test]
fn a_proxy_may_ask_for_a_status_instead() {
    let tidegate = with_rules(RULES);
    let status = || Call::post("/v1/limits/check?on_deny=429", json!({"key": "login:1"})).to(tidegate.addr()).status;
    assert_eq!([status(), status(), status()], [200, 200, 429]);
}

#[test]
fn a_peek_takes_nothing_and_a_reset_gives_everything_back() {
    let tidegate = with_rules(RULES);
    let addr = tidegate.addr();
    assert_eq!([remaining(addr, "login:a/b"), remaining(addr, "login:a/b")], [2, 2]);
    check(addr, "login:a/b");
    assert_eq!(remaining(addr, "login:a/b"), 1);
    Call::new("DELETE", "/v1/limits/keys/login%3Aa%2Fb").to(addr).expect(204);
    assert_eq!(remaining(addr, "login:a/b"), 2);
}

#[test]
fn a_shadow_rule_refuses_nobody_and_says_whom_it_would_have() {
    let tidegate = with_rules(RULES);
    assert_eq!(check(tidegate.addr(), "shadow")["shadow_denied"], json!(null));
    let second = check(tidegate.addr(), "shadow");
    assert_eq!((&second["allowed"], &second["shadow_denied"]), (&json!(true), &json!(true)), "{second}");
}

#[test]
fn a_batch_is_answered_in_order_and_an_atomic_one_is_counted_whole_or_not_at_all() {
    let tidegate = with_rules(RULES);
    let addr = tidegate.addr();
    let batch = |atomic: bool| {
        let checks = json!([{"key": "login:1"}, {"key": "roomy", "cost": 10}]);
        call(addr, "/v1/limits/check-batch", json!({"checks": checks, "atomic": atomic})).expect(200)
    };
    let first = batch(true);
    assert_eq!(first["allowed"], true, "{first}");
    assert_eq!((&first["results"][0]["rule"], &first["results"][1]["rule"]), (&json!("login"), &json!("roomy")));
    batch(true);
    let refused = batch(true);
    assert_eq!(refused["allowed"], false);
    assert_eq!((&refused["results"][0]["allowed"], &refused["results"][1]["allowed"]), (&json!(false), &json!(true)));
    assert!(remaining(addr, "roomy") >= 80, "the refused batch took nothing");
    let independent = batch(false);
    assert_eq!(independent["results"][1]["allowed"], true);
    assert!(remaining(addr, "roomy") < 80, "independent checks are counted each for itself");
}

#[test]
fn a_refused_batch_says_when_all_of_it_has_room() {
    let tidegate = with_rules(RULES);
    let addr = tidegate.addr();
    let batch = |status: u16, checks: serde_json::Value| {
        let answer = call(addr, "/v1/limits/check-batch?on_deny=429", json!({"checks": checks}));
        let retry_after = answer.header("retry-after").map(|seconds| seconds.parse::<u64>().unwrap());
        (answer.expect(status), retry_after)
    };
    let both = json!([{"key": "login:b", "cost": 2}, {"key": "roomy", "cost": 100}]);
    assert_eq!(batch(200, both.clone()).1, None);
    let (refused, retry_after) = batch(429, both);
    let waits = [0, 1].map(|index| refused["results"][index]["retry_after_ms"].as_u64().unwrap());
    assert!(waits.iter().all(|wait| *wait > 0), "{refused}");
    assert_eq!(retry_after, waits.into_iter().max().map(|longest| longest.div_ceil(1_000)));
    let shadowed = batch(200, json!([{"key": "shadow"}, {"key": "shadow"}]));
    assert_eq!(shadowed.1, None, "a shadow rule makes nobody wait");
}
