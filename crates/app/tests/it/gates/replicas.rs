//! Two replicas on one Redis: one place, one circuit, and a caller that dies.

use serde_json::{Value, json};
use testkit::{need, wait_until};

use super::{Caller, replica};
use crate::support::{ADMIN_KEY, SOON};

#[test]
fn a_pass_from_one_replica_is_ended_and_renewed_by_the_other() {
    let redis = need!(testkit::redis());
    let [here, there] = [(); 2].map(|()| replica(&redis.url(), redis.prefix()).start());
    let [at, elsewhere] = [&here, &there].map(|tidegate| Caller::with_key(tidegate, ADMIN_KEY));
    let body = json!({"policy": {"circuit": {"failures": 1, "open": "1h"}, "concurrency": {"limit": 1}}});
    let pass = at.pass("api", body.clone());
    assert_eq!(elsewhere.enter("api", body.clone())["refused_by"], "concurrency");
    assert_eq!(elsewhere.post("/v1/gates/api/renew", json!({"pass": pass})).expect(200)["renewed"], true);
    assert_eq!(elsewhere.exit("api", &pass, "failure").expect(200)["counted"], true);
    assert_eq!(at.exit("api", &pass, "failure").expect(200)["counted"], false);
    for caller in [at, elsewhere] {
        assert_eq!(caller.enter("api", body.clone())["refused_by"], "circuit");
    }
}

/// The caller's replica and with it everything it knew is gone: the place comes back with the lease, not before.
#[test]
fn a_killed_callers_place_returns_with_its_lease() {
    let redis = need!(testkit::redis());
    let [here, there] = [(); 2].map(|()| replica(&redis.url(), redis.prefix()).start());
    let body = json!({"policy": {"concurrency": {"limit": 1}, "lease": "4s"}});
    Caller::with_key(&here, ADMIN_KEY).pass("api", body.clone());
    drop(here.kill());
    let elsewhere = Caller::with_key(&there, ADMIN_KEY);
    assert_eq!(elsewhere.enter("api", body.clone())["refused_by"], "concurrency");
    wait_until(SOON, "the lease to end", || elsewhere.enter("api", body.clone()).get("pass").is_some());
}

#[test]
fn a_circuit_opens_for_all_and_lets_the_configured_probes_through_the_fleet() {
    let redis = need!(testkit::redis());
    let [here, there] = [(); 2].map(|()| replica(&redis.url(), redis.prefix()).start());
    let callers = [&here, &there].map(|tidegate| Caller::with_key(tidegate, ADMIN_KEY));
    let body = json!({"policy": {"circuit": {"failures": 3, "open": "3s", "probes": 2}}});
    for number in 0..3 {
        let caller = &callers[number % 2];
        let pass = caller.pass("api", body.clone());
        caller.exit("api", &pass, "failure").expect(200);
    }
    for caller in &callers {
        assert_eq!(caller.enter("api", body.clone())["refused_by"], "circuit");
    }
    let mut probes: Vec<Value> = Vec::new();
    wait_until(SOON, "the first probe to pass", || {
        let entered = callers[0].enter("api", body.clone());
        let is_pass = entered.get("pass").is_some();
        probes.extend(is_pass.then_some(entered));
        is_pass
    });
    for number in 0..20 {
        let entered = callers[number % 2].enter("api", body.clone());
        if entered.get("pass").is_some() {
            probes.push(entered);
        } else {
            assert_eq!(entered["refused_by"], "circuit");
        }
    }
    assert_eq!(probes.len(), 2, "{probes:?}");
    for (caller, probe) in callers.iter().rev().zip(&probes) {
        assert_eq!(probe["probe"], true, "{probe}");
        caller.exit("api", probe["pass"].as_str().unwrap(), "success").expect(200);
    }
    assert_eq!(callers[1].look("api")["circuit"]["state"], "closed");
}

#[test]
fn without_redis_a_replica_decides_alone_and_says_so() {
    let redis = need!(testkit::redis::Server::start());
    let tidegate = replica(&redis.url(), "").start();
    let caller = Caller::with_key(&tidegate, ADMIN_KEY);
    let shared = caller.pass("api", json!({}));
    redis.kill();
    wait_until(SOON, "an answer that says so", || caller.enter("api", json!({}))["degraded"] == true);
    let local = caller.pass("api", json!({}));
    let exited = caller.exit("api", &shared, "success").expect(200);
    assert_eq!(exited["counted"], false, "{exited}");
    assert!(exited["detail"].as_str().unwrap().contains("Redis did not answer"), "{exited}");
    assert_eq!(caller.exit("api", &local, "success").expect(200)["counted"], true);
    caller.put("/v1/gates/api/override", json!({"state": "open"})).expect_problem(503, "redis_unavailable");
    // Whatever guards it: how many places are held was this replica's guess.
    for policy in [json!({"concurrency": {"limit": 5}}), json!({"rate": {"limit": 5, "window": "1s"}}), json!({})] {
        let shown = caller.put("/v1/gates/bare/policy", policy).expect(200);
        assert_eq!((&shown["degraded"], shown.get("circuit")), (&json!(true), None), "{shown}");
    }
}
