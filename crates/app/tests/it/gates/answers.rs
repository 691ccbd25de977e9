//! One process: what each call answers, and what a pass is worth when it is late, used up, or not one's own.

use serde_json::json;
use testkit::wait_until;

use super::Caller;
use crate::support::{Call, SOON, Setup};

#[test]
fn each_part_refuses_in_its_name_and_exit_frees_the_place() {
    let tidegate = Setup::serve().start();
    let caller = Caller::new(&tidegate);
    let one = json!({"policy": {"concurrency": {"limit": 1}, "lease": "1m"}});
    let entered = caller.enter("permits", one.clone());
    assert_eq!((&entered["lease_ms"], &entered["policy"]), (&json!(60_000), &json!("given")), "{entered}");
    let refused = caller.enter("permits", one.clone());
    assert_eq!(refused["refused_by"], "concurrency", "{refused}");
    assert!(refused["retry_after_ms"].as_u64().is_some_and(|ms| (1..=60_000).contains(&ms)), "{refused}");
    assert!(refused.get("pass").is_none(), "{refused}");
    let exited = caller.exit("permits", entered["pass"].as_str().unwrap(), "success").expect(200);
    assert_eq!(exited, json!({"counted": true}));
    caller.pass("permits", one);

    let slow = json!({"cost": 2, "policy": {"rate": {"limit": 3, "window": "1h"}}});
    assert_eq!(caller.enter("rate", slow.clone())["rate_remaining"], 1);
    assert_eq!(caller.enter("rate", slow)["refused_by"], "rate");

    let brittle = json!({"policy": {"circuit": {"failures": 2, "open": "1h"}}});
    for _ in 0..2 {
        let pass = caller.pass("circuit", brittle.clone());
        caller.exit("circuit", &pass, "failure").expect(200);
    }
    let refused = caller.enter("circuit", brittle);
    assert_eq!(refused["refused_by"], "circuit", "{refused}");
}

#[test]
fn a_refusal_is_200_unless_the_caller_wants_429_and_says_when_to_come_again() {
    let tidegate = Setup::serve().start();
    let caller = Caller::new(&tidegate);
    let body = json!({"policy": {"rate": {"limit": 1, "window": "1h"}}});
    caller.pass("t", body.clone());
    let refused = caller.post("/v1/gates/t/enter", body.clone());
    assert_eq!((refused.status, refused.header("retry-after")), (200, Some("3600")), "{refused:?}");
    let refused = caller.post("/v1/gates/t/enter?on_deny=429", body.clone());
    assert_eq!((refused.status, refused.json()["refused_by"].as_str()), (429, Some("rate")), "{refused:?}");
    let problem = caller.post("/v1/gates/t/enter?on_deny=418", body).expect_problem(422, "invalid_field");
    assert_eq!(problem["field"], "on_deny");
}

/// A target that nobody has configured is guarded all the same: a circuit, and a hundred calls at a time.
#[test]
fn a_target_without_a_policy_has_the_default_one() {
    let tidegate = Setup::serve().start();
    let caller = Caller::new(&tidegate);
    let entered = Call::new("POST", "/v1/gates/new/enter").to(tidegate.addr()).expect(200);
    assert_eq!((&entered["policy"], &entered["lease_ms"]), (&json!("default"), &json!(60_000)), "{entered}");
    let seen = caller.look("new");
    assert_eq!(seen["policy"], json!({"circuit": {}, "concurrency": {"limit": 100}, "lease": "1m"}), "{seen}");
    assert_eq!((&seen["circuit"]["state"], &seen["held"]), (&json!("closed"), &json!(1)), "{seen}");
    for _ in 1..100 {
        caller.pass("new", json!({}));
    }
    assert_eq!(caller.enter("new", json!({}))["refused_by"], "concurrency");
}

#[test]
fn a_pass_counts_once_and_a_late_one_not_at_all() {
    let tidegate = Setup::serve().start();
    let caller = Caller::new(&tidegate);
    let policy =
        |lease: &str| json!({"policy": {"circuit": {"failures": 2}, "concurrency": {"limit": 5}, "lease": lease}});
    let (body, brief) = (policy("1m"), policy("300ms"));
    let twice = caller.pass("t", body.clone());
    assert_eq!(caller.exit("t", &twice, "failure").expect(200)["counted"], true);
    for _ in 0..5 {
        let again = caller.exit("t", &twice, "failure").expect(200);
        assert_eq!(again["counted"], false, "{again}");
        assert!(again["detail"].as_str().unwrap().contains("exited before"), "{again}");
    }
    let late = caller.pass("t", brief);
    wait_until(SOON, "the lease to end", || caller.look("t")["held"] == 0);
    // Somebody else has come since: the place is no longer that pass's to give.
    caller.pass("t", body.clone());
    assert_eq!(caller.exit("t", &late, "failure").expect(200)["counted"], false);
    let renewed = caller.post("/v1/gates/t/renew", json!({"pass": late})).expect(200);
    assert_eq!(renewed, json!({"renewed": false}));
    caller.pass("t", body);
}

#[test]
fn renewing_keeps_the_place_beyond_the_lease() {
    let tidegate = Setup::serve().start();
    let caller = Caller::new(&tidegate);
    let body = json!({"policy": {"concurrency": {"limit": 1}, "lease": "2s"}});
    let pass = caller.pass("t", body.clone());
    let since = std::time::Instant::now();
    wait_until(SOON, "two leases to pass", || {
        let renewed = caller.post("/v1/gates/t/renew", json!({"pass": pass})).expect(200);
        assert_eq!((&renewed["renewed"], &renewed["lease_ms"]), (&json!(true), &json!(2000)), "{renewed}");
        assert_eq!(caller.enter("t", body.clone())["refused_by"], "concurrency");
        since.elapsed().as_secs() >= 4
    });
    assert_eq!(caller.exit("t", &pass, "ignored").expect(200)["counted"], true);
}

#[test]
fn a_mistake_is_a_problem_that_names_the_field_and_nothing_is_charged() {
    let tidegate = Setup::serve().start();
    let caller = Caller::new(&tidegate);
    for (body, field) in [
        (json!({"cost": 0}), "cost"),
        (json!({"cost": -1}), "cost"),
        (json!({"cost": 4, "policy": {"rate": {"limit": 3, "window": "1s"}}}), "cost"),
        (json!({"policy": {"rate": {"limit": 0, "window": "1s"}}}), "policy.rate.limit"),
        (json!({"policy": {"rate": {"limit": 1, "window": "soon"}}}), "policy.rate.window"),
        (json!({"policy": {"circuit": {"failures": 0}}}), "policy.circuit.failures"),
        (json!({"policy": {"concurrency": {"limit": 0}}}), "policy.concurrency.limit"),
        (json!({"policy": {"lease": "2h"}}), "policy.lease"),
        (json!({"policy": {"concurency": {"limit": 1}}}), "policy.concurency"),
        (json!({"prio": 1}), "prio"),
    ] {
        let problem = caller.post("/v1/gates/t/enter", body.clone()).expect_problem(422, "invalid_field");
        assert_eq!(problem["field"], field, "{body}: {problem}");
    }
    let long = "t".repeat(401);
    for target in [long.as_str(), "a%0ab"] {
        let problem = caller.post(&format!("/v1/gates/{target}/enter"), json!({})).expect_problem(422, "invalid_field");
        assert_eq!(problem["field"], "target");
    }
    let pass = caller.pass("t", json!({}));
    let exit = |body| caller.post("/v1/gates/t/exit", body);
    for outcome in [json!("maybe"), json!(5)] {
        let problem = exit(json!({"pass": pass, "outcome": outcome})).expect_problem(422, "invalid_field");
        assert_eq!(problem["detail"], "it must be one of: success, failure, ignored", "{problem}");
    }
    let forced = Call::new("PUT", "/v1/gates/t/override").json(json!({"state": 5})).to(tidegate.addr());
    assert_eq!(forced.expect_problem(422, "invalid_field")["field"], "state");
    for after in ["", "a%0ab"] {
        let problem = caller.get(&format!("/v1/gates?after={after}")).expect_problem(400, "invalid_query");
        assert_eq!(problem["field"], "after", "{problem}");
    }
    exit(json!({"pass": pass})).expect_problem(422, "invalid_field");
    for pass in ["", "pass_", "s.-.0.-", "pass_c2VjcmV0", &pass[..pass.len() - 1], &format!("{pass}A")] {
        let problem = exit(json!({"pass": pass, "outcome": "failure"})).expect_problem(422, "invalid_pass");
        assert_eq!(problem["field"], "pass");
    }
    assert_eq!(caller.look("t")["held"], 1);
    assert!(!tidegate.output().contains("panicked"), "{}", tidegate.output());
}
