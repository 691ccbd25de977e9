//! Tenants, targets and scopes: a pass opens one gate of one tenant.

use serde_json::json;

use super::Caller;
use crate::support::{ADMIN_KEY, Call, Setup, Tidegate};

fn key(tidegate: &Tidegate, tenant: &str, scopes: &[&str]) -> String {
    let call = Call::post(&format!("/admin/tenants/{tenant}/keys"), json!({"name": "k", "scopes": scopes})).admin();
    call.to(tidegate.addr()).expect(201)["key"].as_str().unwrap().to_owned()
}

#[test]
fn a_pass_of_another_tenant_or_target_is_refused_and_changes_nothing() {
    let tidegate = Setup::locked().start();
    for tenant in ["acme", "globex"] {
        Call::post("/admin/tenants", json!({"id": tenant, "name": tenant})).admin().to(tidegate.addr()).expect(201);
    }
    let scopes = ["limits:check", "limits:read"];
    let [acme, globex] = ["acme", "globex"].map(|tenant| {
        let key = key(&tidegate, tenant, &scopes);
        Caller::with_key(&tidegate, &key)
    });
    let body = json!({"policy": {"circuit": {"failures": 1, "open": "1h"}, "concurrency": {"limit": 1}}});
    let passes = [&acme, &globex].map(|caller| [caller.pass("a", body.clone()), caller.pass("b", body.clone())]);
    for (who, caller) in [&acme, &globex].into_iter().enumerate() {
        for (of_target, target) in ["a", "b"].into_iter().enumerate() {
            for (of, own) in passes.iter().enumerate() {
                for (number, pass) in own.iter().enumerate() {
                    if (of, number) != (who, of_target) {
                        caller.exit(target, pass, "failure").expect_problem(422, "invalid_pass");
                        let renew = caller.post(&format!("/v1/gates/{target}/renew"), json!({"pass": pass}));
                        renew.expect_problem(422, "invalid_pass");
                    }
                }
            }
            let seen = caller.look(target);
            assert_eq!((&seen["held"], &seen["circuit"]["state"]), (&json!(1), &json!("closed")), "{seen}");
        }
    }
    assert_eq!(acme.exit("a", &passes[0][0], "failure").expect(200)["counted"], true);
    assert_eq!(acme.enter("a", body.clone())["refused_by"], "circuit");
    assert_eq!(globex.enter("a", body)["refused_by"], "concurrency", "another tenant's circuit is its own");
    assert_eq!(globex.get("/v1/gates?after=zzz").expect(200)["data"], json!([]));
}

#[test]
fn each_call_needs_its_scope() {
    let tidegate = Setup::locked().start();
    let admin = Caller::with_key(&tidegate, ADMIN_KEY);
    let pass = admin.pass("t", json!({}));
    let exit = json!({"pass": pass, "outcome": "ignored"});
    let cases = [
        ("limits:check", Call::post("/v1/gates/t/enter", json!({}))),
        ("limits:check", Call::post("/v1/gates/t/renew", json!({"pass": pass}))),
        ("limits:check", Call::post("/v1/gates/t/exit", exit)),
        ("limits:read", Call::get("/v1/gates/t")),
        ("limits:read", Call::get("/v1/gates")),
        ("limits:write", Call::new("PUT", "/v1/gates/t/policy").json(json!({"circuit": {}}))),
        ("limits:write", Call::new("PUT", "/v1/gates/t/override").json(json!({"state": "automatic"}))),
        ("limits:write", Call::new("DELETE", "/v1/gates/t/policy")),
    ];
    let scopes = ["limits:check", "limits:read", "limits:write"];
    let keys = scopes.map(|scope| (scope, key(&tidegate, "default", &[scope])));
    for (needed, call) in cases {
        for (scope, key) in keys.iter().filter(|(scope, _)| *scope != needed) {
            let problem = call.clone().key(key).to(tidegate.addr()).expect_problem(403, "missing_scope");
            assert!(problem["detail"].as_str().unwrap().contains(needed), "{scope}: {problem}");
        }
        let (_, key) = keys.iter().find(|(scope, _)| *scope == needed).unwrap();
        let status = call.key(key).to(tidegate.addr()).status;
        assert!(status < 300, "{needed}: {status}");
    }
    Call::post("/v1/gates/t/enter", json!({})).to(tidegate.addr()).expect_problem(401, "missing_key");
}
