//! What operators do with gates, over gRPC as over HTTP: policies, orders by hand, the list, and whose key may.

use serde_json::{Value, json};
use testkit::need;

use super::Client;
use crate::support::{ADMIN_KEY, Call, Setup};

const ENTER: &str = "/tidegate.limits.v1.Gates/Enter";
const STATE: &str = "/tidegate.limits.v1.Gates/State";
const LIST: &str = "/tidegate.limits.v1.Gates/List";
const PUT_POLICY: &str = "/tidegate.limits.v1.Gates/PutPolicy";
const DELETE_POLICY: &str = "/tidegate.limits.v1.Gates/DeletePolicy";
const PUT_OVERRIDE: &str = "/tidegate.limits.v1.Gates/PutOverride";

#[track_caller]
fn ok(answer: Value) -> Value {
    answer.get("ok").cloned().unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn a_policy_that_was_stored_over_one_protocol_is_the_same_over_the_other() {
    let tidegate = Setup::serve().start();
    let client = need!(Client::connect(tidegate.grpc_addr()));
    let policy = json!({
        "rate": {"limit": "5", "window_ms": "1000", "algorithm": "TOKEN_BUCKET", "burst": "9", "fallback": "CLOSED"},
        "circuit": {"failures": 2, "open_ms": "3600000"},
        "concurrency": {"limit": 1},
        "lease_ms": "5000",
    });
    let stored = ok(client.call(PUT_POLICY, json!({"target": "api", "policy": policy})));
    assert_eq!((&stored["policy"], &stored["policy_in_force"]), (&json!("POLICY_SOURCE_STORED"), &policy));
    let look = || Call::get("/v1/gates/api").to(tidegate.addr()).expect(200);
    let over_http = json!({
        "rate": {"limit": 5, "window": "1s", "algorithm": "token_bucket", "burst": 9, "fallback": "closed"},
        "circuit": {"failures": 2, "open": "1h"},
        "concurrency": {"limit": 1},
        "lease": "5s",
    });
    assert_eq!(look()["policy"], over_http);
    let given = json!({"target": "api", "policy": {"concurrency": {"limit": 3}}});
    assert_eq!(ok(client.call(ENTER, given))["policy"], "POLICY_SOURCE_STORED", "it wins over what callers bring");

    let put = Call::new("PUT", "/v1/gates/api/policy").json(json!({"concurrency": {"limit": 7}}));
    put.to(tidegate.addr()).expect(200);
    let state = || ok(client.call(STATE, json!({"target": "api"})));
    assert_eq!(state()["policy_in_force"], json!({"concurrency": {"limit": 7}}));
    for _ in 0..2 {
        ok(client.call(DELETE_POLICY, json!({"target": "api"})));
        assert_eq!(
            (&state()["policy"], &look()["policy_source"]),
            (&json!("POLICY_SOURCE_DEFAULT"), &json!("default"))
        );
    }
}

#[test]
fn an_order_by_hand_holds_for_its_time() {
    let tidegate = Setup::serve().start();
    let client = need!(Client::connect(tidegate.grpc_addr()));
    let order = |request: Value| ok(client.call(PUT_OVERRIDE, request))["circuit"].clone();
    let enter = || ok(client.call(ENTER, json!({"target": "api"})));
    let minutes =
        |circuit: &Value| circuit["retry_after_ms"].as_str().unwrap().parse::<u64>().unwrap().div_ceil(60_000);

    let open = order(json!({"target": "api", "state": "OVERRIDE_STATE_OPEN", "for_ms": "600000"}));
    assert_eq!((&open["state"], minutes(&open)), (&json!("forced_open"), 10), "{open}");
    assert_eq!(enter()["refused"]["by"], "CIRCUIT");
    let open = order(json!({"target": "api", "state": "OVERRIDE_STATE_OPEN"}));
    assert_eq!(minutes(&open), 60, "an hour if it is not said: {open}");
    let closed = order(json!({"target": "api", "state": "OVERRIDE_STATE_CLOSED"}));
    assert_eq!(closed["state"], "forced_closed");
    let http = Call::get("/v1/gates/api").to(tidegate.addr()).expect(200);
    assert_eq!(http["circuit"]["state"], "forced_closed");
    assert_eq!(order(json!({"target": "api", "state": "OVERRIDE_STATE_AUTOMATIC"}))["state"], "closed");
    assert!(enter()["pass"].is_object());
}

#[test]
fn the_list_comes_page_by_page() {
    let tidegate = Setup::serve().start();
    let client = need!(Client::connect(tidegate.grpc_addr()));
    for target in ["b", "c", "a"] {
        ok(client.call(PUT_POLICY, json!({"target": target, "policy": {"concurrency": {"limit": 2}}})));
    }
    let targets = |page: &Value| -> Vec<String> {
        page["gates"].as_array().unwrap().iter().map(|gate| gate["target"].as_str().unwrap().to_owned()).collect()
    };
    let first = ok(client.call(LIST, json!({"limit": 2})));
    assert_eq!((targets(&first), &first["next"]), (vec!["a".to_owned(), "b".to_owned()], &json!("b")), "{first}");
    let gate = &first["gates"][0];
    assert_eq!(gate["policy"], json!({"concurrency": {"limit": 2}}));
    assert!(gate["created_at"].as_str().is_some_and(|time| time.ends_with('Z')), "{gate}");
    let second = ok(client.call(LIST, json!({"limit": 2, "after": first["next"]})));
    assert_eq!((targets(&second), &second["next"]), (vec!["c".to_owned()], &json!("")), "{second}");
    assert_eq!(targets(&ok(client.call(LIST, json!({})))), ["a", "b", "c"]);
}

#[test]
fn a_mistake_names_the_field_as_the_message_calls_it_and_changes_nothing() {
    let tidegate = Setup::serve().start();
    let client = need!(Client::connect(tidegate.grpc_addr()));
    let rate = |rate: Value| json!({"target": "t", "policy": {"rate": rate}});
    for (method, request, begins) in [
        (PUT_POLICY, json!({"target": "t"}), "policy: "),
        (PUT_POLICY, json!({"target": "", "policy": {}}), "target: "),
        (PUT_POLICY, rate(json!({"limit": "0", "window_ms": "1"})), "policy.rate.limit: "),
        (PUT_POLICY, rate(json!({"limit": "1"})), "policy.rate.window_ms: "),
        (PUT_POLICY, rate(json!({"limit": "1", "window_ms": "1000", "algorithm": 99})), "policy.rate.algorithm: 99 "),
        (PUT_POLICY, rate(json!({"limit": "1", "window_ms": "1000", "fallback": 77})), "policy.rate.fallback: 77 "),
        (PUT_POLICY, json!({"target": "t", "policy": {"lease_ms": "7200000"}}), "policy.lease_ms: "),
        (
            PUT_POLICY,
            json!({"target": "t", "policy": {"circuit": {"open_cap_ms": "18446744073709551615"}}}),
            "policy.circuit.open_cap_ms: ",
        ),
        (ENTER, rate(json!({"limit": "1"})), "policy.rate.window_ms: "),
        (DELETE_POLICY, json!({"target": "x".repeat(401)}), "target: "),
        (PUT_OVERRIDE, json!({"target": "t"}), "state: write OVERRIDE_STATE_OPEN, "),
        (PUT_OVERRIDE, json!({"target": "t", "state": 9}), "state: "),
        (PUT_OVERRIDE, json!({"target": "a\nb", "state": 1}), "target: "),
        (PUT_OVERRIDE, json!({"target": "t", "state": 1, "for_ms": "0"}), "for_ms: "),
        (PUT_OVERRIDE, json!({"target": "t", "state": 2, "for_ms": "2592000001"}), "for_ms: "),
        (LIST, json!({"limit": 0}), "limit: "),
        (LIST, json!({"limit": 1001}), "limit: "),
    ] {
        let answer = client.call(method, request.clone());
        assert_eq!(answer["code"], "INVALID_ARGUMENT", "{method} {request}: {answer}");
        assert!(answer["message"].as_str().unwrap().starts_with(begins), "{method} {request}: {answer}");
        assert!(answer["reason"].is_string(), "{answer}");
    }
    let state = ok(client.call(STATE, json!({"target": "t"})));
    assert_eq!((&state["policy"], &state["held"]), (&json!("POLICY_SOURCE_DEFAULT"), &json!(0)), "{state}");
    assert_eq!(state["circuit"]["state"], "closed", "{state}");
    assert!(!tidegate.output().contains("panicked"), "{}", tidegate.output());
}

#[test]
fn each_call_has_its_scope_and_reaches_its_own_tenant_only() {
    let tidegate = Setup::locked().start();
    let client = need!(Client::connect(tidegate.grpc_addr()));
    Call::post("/admin/tenants", json!({"id": "acme", "name": "acme"})).admin().to(tidegate.addr()).expect(201);
    let key = |tenant: &str, scope: &str| {
        let body = json!({"name": scope, "scopes": [scope]});
        let call = Call::post(&format!("/admin/tenants/{tenant}/keys"), body).admin();
        call.to(tidegate.addr()).expect(201)["key"].as_str().unwrap().to_owned()
    };
    let scopes = ["limits:check", "limits:read", "limits:write"];
    let keys = scopes.map(|scope| (scope, key("default", scope)));
    let policy = json!({"concurrency": {"limit": 4}});
    for (method, request, scope) in [
        (PUT_POLICY, json!({"target": "t", "policy": policy}), "limits:write"),
        (PUT_OVERRIDE, json!({"target": "t", "state": "OVERRIDE_STATE_OPEN"}), "limits:write"),
        (LIST, json!({}), "limits:read"),
        (STATE, json!({"target": "t"}), "limits:read"),
        (DELETE_POLICY, json!({"target": "other"}), "limits:write"),
    ] {
        assert_eq!(client.call(method, request.clone())["code"], "UNAUTHENTICATED", "{method}");
        for (own, key) in &keys {
            let answer = client.call_with_key(key, method, request.clone());
            match *own == scope {
                true => drop(ok(answer)),
                false => assert_eq!(answer["code"], "PERMISSION_DENIED", "{method} with {own}: {answer}"),
            }
        }
    }
    // Whatever a stranger does to a target of the same name, ours stays as it is.
    let (theirs, reads) = (key("acme", "limits:write"), key("acme", "limits:read"));
    assert_eq!(ok(client.call_with_key(&reads, LIST, json!({})))["gates"], json!([]));
    assert_eq!(ok(client.call_with_key(&reads, STATE, json!({"target": "t"})))["policy"], "POLICY_SOURCE_DEFAULT");
    ok(client.call_with_key(&theirs, DELETE_POLICY, json!({"target": "t"})));
    ok(client.call_with_key(&theirs, PUT_OVERRIDE, json!({"target": "t", "state": "OVERRIDE_STATE_AUTOMATIC"})));
    let ours = ok(client.call_with_key(ADMIN_KEY, STATE, json!({"target": "t"})));
    assert_eq!((&ours["policy_in_force"], &ours["circuit"]["state"]), (&policy, &json!("forced_open")), "{ours}");
}
