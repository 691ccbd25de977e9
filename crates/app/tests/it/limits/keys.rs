//! Who was limited, and by which rule.

use serde_json::json;
use testkit::wait_until;

use super::{call, check, with_rules};
use crate::support::{Backend, Call, SOON, Setup, each_backend};

const RULES: &str = r#"
[[rule]]
id = "everything"
key = "*"
limit = 1000
window = "1h"

[[rule]]
id = "users"
key = "user:*"
algorithm = "sliding_counter"
limit = 2
window = "1h"

[rule.overrides]
"user:vip" = { limit = 50 }

[[rule]]
id = "seven"
key = "user:7"
limit = 5
window = "1m"
"#;

#[test]
fn the_keys_that_were_refused_most_come_first() {
    let tidegate = with_rules(RULES);
    let addr = tidegate.addr();
    for (key, times) in [("user:a", 7), ("user:b", 4), ("quiet", 9)] {
        for _ in 0..times {
            check(addr, key);
        }
    }
    let denied = Call::get("/v1/limits/keys").to(addr).expect(200);
    assert_eq!(
        denied["data"],
        json!([{"key": "user:a", "count": 5, "error": 0}, {"key": "user:b", "count": 2, "error": 0}])
    );
    let checked = Call::get("/v1/limits/keys?sort=checked&limit=1").to(addr).expect(200);
    assert_eq!(checked["data"], json!([{"key": "quiet", "count": 9, "error": 0}]));
    Call::get("/v1/limits/keys?limit=0").to(addr).expect_problem(400, "invalid_query");
    let metrics = Call::get("/metrics").to(tidegate.ops_addr()).body;
    assert!(metrics.contains(r#"tidegate_limits_rule_decisions_total{rule="users",result="denied"} 7"#), "{metrics}");
    assert!(!metrics.contains("user:a"), "a key is no label");
}

#[test]
fn an_explanation_names_the_rule_that_speaks_and_why_the_others_do_not() {
    let tidegate = with_rules(RULES);
    let addr = tidegate.addr();
    let explain = |key: &str| call(addr, "/v1/limits/explain", json!({"key": key})).expect(200);
    let seven = explain("user:7");
    assert_eq!((&seven["rule"]["id"], &seven["rule"]["algorithm"]), (&json!("seven"), &json!("gcra")), "{seven}");
    let others: Vec<&str> = seven["others"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(others, ["users", "everything"]);
    assert!(seven["others"][0]["why_not"].as_str().unwrap().contains("exact"), "{seven}");
    assert!(explain("user:8")["others"][0]["why_not"].as_str().unwrap().contains("longer beginning"));
    let vip = explain("user:vip");
    assert_eq!((&vip["rule"]["overridden"], &vip["rule"]["limit"]), (&json!(true), &json!(50)), "{vip}");
    call(addr, "/v1/limits/rules", json!({"id": "own", "key": "*", "limit": 1, "window": "1s"})).expect(201);
    let own = explain("user:7");
    assert_eq!((&own["rule"]["id"], &own["rule"]["source"]), (&json!("own"), &json!("api")), "{own}");
    assert!(own["others"][0]["why_not"].as_str().unwrap().contains("own rule"), "{own}");
    call(addr, "/v1/limits/explain", json!({"key": ""})).expect_problem(422, "invalid_field");
}

each_backend! { of_two_rules_that_say_as_much_the_one_made_first_speaks }

fn of_two_rules_that_say_as_much_the_one_made_first_speaks(backend: &Backend) {
    let tidegate = backend.under(Setup::serve()).start();
    let addr = tidegate.addr();
    let rule = |id: &str, key: &str| json!({"id": id, "key": key, "limit": 5, "window": "1m"});
    let first = call(addr, "/v1/limits/rules", rule("z-first", "user:*:read")).expect(201);
    wait_until(SOON, "the next rule to be made later", || {
        let second = call(addr, "/v1/limits/rules", rule("a-second", "user:*")).expect(201);
        let is_later = second["created_at"] != first["created_at"];
        if !is_later {
            Call::new("DELETE", "/v1/limits/rules/a-second").to(addr).expect(204);
        }
        is_later
    });
    let explained = || call(addr, "/v1/limits/explain", json!({"key": "user:7:read"})).expect(200);
    let winner = explained();
    assert_eq!(winner["rule"]["id"], "z-first", "{winner}");
    assert_eq!(winner["others"][0]["why_not"], "another with the same beginning was made first", "{winner}");
    let changed = json!({"key": "user:*:read", "limit": 9, "window": "1m"});
    Call::new("PUT", "/v1/limits/rules/z-first").json(changed).to(addr).expect(200);
    assert_eq!(explained()["rule"]["id"], "z-first", "a change makes no new rule");
    let tidegate = tidegate.stop().succeeded().again().start();
    let explained = call(tidegate.addr(), "/v1/limits/explain", json!({"key": "user:7:read"})).expect(200);
    assert_eq!(explained["rule"]["id"], "z-first", "{explained}");
}

#[test]
fn without_a_rule_an_explanation_says_so() {
    let tidegate = Setup::serve().start();
    let nothing = call(tidegate.addr(), "/v1/limits/explain", json!({"key": "k"})).expect(200);
    assert_eq!(nothing, json!({"key": "k", "others": []}));
}

#[test]
fn a_sample_of_the_decisions_is_in_the_log() {
    let tidegate = Setup::serve()
        .file("rules.toml", RULES)
        .env("TIDEGATE__LIMITS__RULES_FILE", "rules.toml")
        .env("TIDEGATE__LIMITS__LOG_SAMPLE", "1.0")
        .start();
    check(tidegate.addr(), "user:logged");
    wait_until(SOON, "the log to say it", || tidegate.output().contains("user:logged"));
}
