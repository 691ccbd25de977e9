//! Without Redis each rule decides as it says: by this replica's share, for everybody, or for nobody.

use serde_json::{Value, json};
use testkit::redis::Server;

use super::{call, check};
use crate::support::Setup;

const RULES: &str = r#"
[[rule]]
key = "local"
limit = 2
window = "1h"
algorithm = "fixed_window"

[[rule]]
key = "open"
limit = 2
window = "1h"
algorithm = "fixed_window"
fallback = "open"

[[rule]]
key = "closed"
limit = 2
window = "1h"
algorithm = "fixed_window"
fallback = "closed"
"#;

#[test]
fn without_redis_each_rule_decides_as_it_says() {
    let redis = testkit::need!(Server::start());
    let setup = Setup::serve().file("rules.toml", RULES).env("TIDEGATE__LIMITS__RULES_FILE", "rules.toml");
    let tidegate = setup.env("REDIS_URL", &redis.url()).start();
    redis.kill();
    let addr = tidegate.addr();
    let answers = |key: &str| -> Vec<Value> { (0..4).map(|_| check(addr, key)).collect() };
    let allowed = |answers: &[Value]| answers.iter().map(|answer| answer["allowed"] == true).collect::<Vec<_>>();
    let (local, open, closed) = (answers("local"), answers("open"), answers("closed"));
    assert_eq!(allowed(&local), [true, true, false, false], "{local:?}");
    assert_eq!(allowed(&open), [true; 4], "{open:?}");
    assert_eq!(allowed(&closed), [false; 4], "{closed:?}");
    for answer in local.iter().chain(&open).chain(&closed) {
        assert_eq!(answer["degraded"], true, "{answer}");
    }
    assert_eq!(open[3]["remaining"], 2, "nothing is counted: {open:?}");
    let wait_ms = closed[0]["retry_after_ms"].as_u64().unwrap();
    assert!(wait_ms > 0, "a refusal says when to come again: {closed:?}");
    // Together: one that is closed refuses all, and nothing is counted.
    let together = json!({"atomic": true, "checks": [{"key": "open"}, {"key": "closed"}]});
    let together = call(addr, "/v1/limits/check-batch", together).expect(200);
    assert_eq!(together["allowed"], false, "{together}");
}
