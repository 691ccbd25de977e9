//! A process serves what its roles serve, and says who serves the rest.

use std::collections::BTreeSet;

use serde_json::json;

use crate::support::{Call, Setup, Tidegate};

const EVENTS: &str = "/v1/events";
const LIMITS: &str = "/v1/limits/rules";
const GATES: &str = "/v1/gates";
const ADMIN: [&str; 5] = ["/admin/tenants", "/admin/tenants/default/keys", "/admin/audit", "/v1/me", "/docs"];

fn having(roles: &str) -> Tidegate {
    Setup::serve().arg("--roles").arg(roles).start()
}

#[track_caller]
fn assert_elsewhere(tidegate: &Tidegate, path: &str, role: &str) {
    for method in ["GET", "POST", "DELETE"] {
        let problem = Call::new(method, path).to(tidegate.addr()).expect_problem(404, "other_role");
        assert!(problem["detail"].as_str().unwrap().ends_with(&format!("the role {role}")), "{problem}");
    }
}

#[track_caller]
fn assert_served(tidegate: &Tidegate, path: &str) {
    assert_eq!(tidegate.get(path).status, 200, "{path}");
}

/// The first words of the documented paths.
fn documented(tidegate: &Tidegate) -> BTreeSet<String> {
    let document = tidegate.get("/openapi.json").expect(200);
    let first = |path: &String| path.trim_start_matches("/v1").split('/').nth(1).unwrap().to_owned();
    document["paths"].as_object().unwrap().keys().map(first).collect()
}

#[test]
fn a_worker_serves_its_health_and_nothing_else() {
    let worker = having("worker");
    for path in ["/health/live", "/health/ready"] {
        assert_served(&worker, path);
        assert_eq!(Call::get(path).to(worker.ops_addr()).status, 200);
    }
    for path in [EVENTS, "/events", "/v1/subscriptions/nobody", "/v1/deliveries", "/v1/rejected", "/v1/jobs"] {
        assert_elsewhere(&worker, path, "api");
    }
    for path in [LIMITS, GATES, "/v1/limits/check"] {
        assert_elsewhere(&worker, path, "limits");
    }
    for path in ADMIN.into_iter().chain(["/openapi.json"]) {
        assert_elsewhere(&worker, path, "api or limits");
    }
    // The fast lane before the router is no way in either.
    let event = Call::post(EVENTS, json!({"type": "a.b", "data": {}}));
    event.to(worker.addr()).expect_problem(404, "other_role");
    Call::post("/v1/limits/check", json!({"key": "a"})).to(worker.addr()).expect_problem(404, "other_role");
    worker.get("/nowhere").expect_problem(404, "unknown_route");
    let banner = worker.output();
    assert!(!banner.contains("/docs") && banner.contains("/health/ready"), "{banner}");
}

#[test]
fn limits_alone_serve_their_own_routes_and_keys() {
    let limits = having("limits");
    ADMIN.into_iter().chain([LIMITS, GATES]).for_each(|path| assert_served(&limits, path));
    let key = Call::post("/admin/tenants/default/keys", json!({"name": "a"})).to(limits.addr()).expect(201);
    Call::get("/v1/me").key(key["key"].as_str().unwrap()).to(limits.addr()).expect(200);
    assert_elsewhere(&limits, EVENTS, "api");
    let expected = ["admin", "gates", "health", "limits", "me"];
    assert_eq!(documented(&limits), expected.map(str::to_owned).into());
}

#[test]
fn api_alone_has_no_limits_and_every_role_together_has_everything() {
    let api = having("api");
    ADMIN.into_iter().chain([EVENTS]).for_each(|path| assert_served(&api, path));
    assert_elsewhere(&api, LIMITS, "limits");
    assert_elsewhere(&api, GATES, "limits");
    let paths = documented(&api);
    assert!(paths.contains("events") && !paths.contains("limits") && !paths.contains("gates"), "{paths:?}");
    let all = Setup::serve().start();
    ADMIN.into_iter().chain([EVENTS, LIMITS, GATES]).for_each(|path| assert_served(&all, path));
}
