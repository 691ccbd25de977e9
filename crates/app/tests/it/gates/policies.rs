//! Policies that are stored, orders by hand, and the list.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::{need, wait_until};

use super::{Caller, replica};
use crate::support::{ADMIN_KEY, Backend, Call, SOON, Setup, Tidegate, each_backend};

each_backend! {
    a_stored_policy_wins_and_survives_a_restart
    gates_are_listed_by_name_in_pages
    the_audit_says_who_changed_a_gate
}

fn a_stored_policy_wins_and_survives_a_restart(backend: &Backend) {
    let tidegate = backend.locked().start();
    let caller = Caller::with_key(&tidegate, ADMIN_KEY);
    let policy =
        json!({"rate": {"limit": 2, "window": "1h", "algorithm": "sliding_log", "fallback": "local"}, "lease": "5m"});
    let stored = caller.put("/v1/gates/api/policy", policy.clone()).expect(200);
    assert_eq!((&stored["policy"], &stored["policy_source"]), (&policy, &json!("stored")), "{stored}");
    // What an operator wrote in one place holds for callers that bring their own.
    let generous = json!({"policy": {"rate": {"limit": 1000, "window": "1s"}}});
    let entered = caller.enter("api", generous.clone());
    assert_eq!((&entered["policy"], &entered["lease_ms"]), (&json!("stored"), &json!(300_000)), "{entered}");
    caller.pass("api", generous.clone());
    assert_eq!(caller.enter("api", generous.clone())["refused_by"], "rate");
    let problem = caller.put("/v1/gates/api/policy", json!({"rate": {"limit": 0, "window": "1s"}}));
    assert_eq!(problem.expect_problem(422, "invalid_field")["field"], "rate.limit");
    // An array is no policy without guards, and no part of one.
    caller.put("/v1/gates/api/policy", json!([])).expect_problem(422, "invalid_field");
    let problem = caller.put("/v1/gates/api/policy", json!({"circuit": []}));
    assert_eq!(problem.expect_problem(422, "invalid_field")["field"], "circuit");

    let tidegate = tidegate.stop().succeeded().again().start();
    let caller = Caller::with_key(&tidegate, ADMIN_KEY);
    assert_eq!(caller.look("api")["policy"], policy);
    assert_eq!(caller.send(Call::new("DELETE", "/v1/gates/api/policy")).status, 204);
    assert_eq!(caller.look("api")["policy_source"], "default");
    assert_eq!(caller.enter("api", generous)["policy"], "given");
}

fn gates_are_listed_by_name_in_pages(backend: &Backend) {
    let tidegate = backend.locked().start();
    let caller = Caller::with_key(&tidegate, ADMIN_KEY);
    for target in ["c", "a", "b"] {
        caller.pass(target, json!({}));
    }
    caller.put("/v1/gates/d/policy", json!({"circuit": {}})).expect(200);
    let names = |path: &str| {
        let page = caller.get(path).expect(200);
        let names: Vec<String> =
            page["data"].as_array().unwrap().iter().map(|gate| gate["target"].as_str().unwrap().to_owned()).collect();
        (names.join(""), page["next"].as_str().map(str::to_owned))
    };
    wait_until(SOON, "every use to be noted", || names("/v1/gates").0 == "abcd");
    assert_eq!(names("/v1/gates?limit=2"), ("ab".to_owned(), Some("b".to_owned())));
    assert_eq!(names("/v1/gates?limit=2&after=b"), ("cd".to_owned(), None));
    caller.get("/v1/gates?limit=0").expect_problem(400, "invalid_query");
}

fn the_audit_says_who_changed_a_gate(backend: &Backend) {
    let tidegate = backend.under(Setup::serve()).start();
    let caller = Caller::new(&tidegate);
    let take = |target: &str| caller.send(Call::new("DELETE", &format!("/v1/gates/{target}/policy"))).expect(204);
    let order = |body| caller.put("/v1/gates/api/override", body);
    caller.put("/v1/gates/api/policy", json!({"circuit": {}})).expect(200);
    for state in ["open", "closed", "automatic"] {
        order(json!({"state": state})).expect(200);
    }
    order(json!({"state": "open", "for": "0s"})).expect(422);
    take("api");
    take("api");
    take("never-there");
    let expected = ["policy_stored", "forced_open", "forced_closed", "automatic", "policy_taken"];
    assert_eq!(tidegate.audit(), expected.map(|action| format!("dev gate.{action} api")));
    let gates = caller.get("/v1/gates").expect(200);
    assert_eq!(gates["data"].as_array().unwrap().len(), 1, "what was never there is not listed: {gates}");
}

/// An order stops calls in an emergency, which may be the database's.
#[test]
fn an_order_is_obeyed_while_the_database_is_away_and_the_log_says_whose_it_was() {
    let postgres = need!(testkit::postgres::Server::start());
    let tidegate = Setup::serve().env("DATABASE_URL", &postgres.url()).start();
    let caller = Caller::new(&tidegate);
    let missing = || tidegate.output().lines().filter(|line| line.contains("missing in the audit log")).count();
    for (number, (state, away)) in [("open", "silent"), ("closed", "gone")].into_iter().enumerate() {
        match away {
            "silent" => postgres.stop(),
            _ => postgres.kill(),
        }
        let ordered = Instant::now();
        caller.put("/v1/gates/api/override", json!({"state": state})).expect(200);
        assert!(ordered.elapsed() < Duration::from_secs(8), "{away}: {:?}", ordered.elapsed());
        assert_eq!(caller.look("api")["circuit"]["state"], format!("forced_{state}"), "{away}");
        wait_until(SOON, "the log to say it", || missing() == number + 1);
    }
    assert!(tidegate.output().contains(r#""actor":"dev""#));
}

/// A field called `target` would stand beside the `target` of every line, and most readers keep only one.
#[test]
fn the_log_of_an_order_names_the_gate() {
    let tidegate = Setup::serve().start();
    Caller::new(&tidegate).put("/v1/gates/api/override", json!({"state": "open"})).expect(200);
    let line = || tidegate.output().lines().find(|line| line.contains("changed a circuit")).map(str::to_owned);
    wait_until(SOON, "the log to say it", || line().is_some());
    let line = line().unwrap();
    assert!(line.contains(r#""gate":""#) && line.matches(r#""target":"#).count() == 1, "{line}");
}

#[test]
fn an_order_by_hand_holds_for_its_time_and_ends_by_itself() {
    let tidegate = Setup::serve().start();
    let caller = Caller::new(&tidegate);
    let order = |body| caller.put("/v1/gates/api/override", body);
    let forced = order(json!({"state": "open", "for": "1s"})).expect(200);
    assert_eq!(forced["circuit"]["state"], "forced_open", "{forced}");
    let refused = caller.enter("api", json!({}));
    assert_eq!(refused["refused_by"], "circuit", "{refused}");
    wait_until(SOON, "the order to end", || caller.enter("api", json!({})).get("pass").is_some());

    order(json!({"state": "closed"})).expect(200);
    for _ in 0..10 {
        let pass = caller.pass("api", json!({}));
        caller.exit("api", &pass, "failure").expect(200);
    }
    caller.pass("api", json!({}));
    let automatic = order(json!({"state": "automatic"})).expect(200);
    assert_eq!(automatic["circuit"]["state"], "closed", "{automatic}");

    for (body, field) in [
        (json!({"state": "ajar"}), "state"),
        (json!({"state": "open", "for": "0s"}), "for"),
        (json!({"state": "open", "for": "31days"}), "for"),
        (json!({"state": "open", "until": "x"}), "until"),
    ] {
        assert_eq!(order(body).expect_problem(422, "invalid_field")["field"], field);
    }
}

/// An order is given to stop the calls: whoever brings a policy without a circuit is stopped, too.
fn a_gate_that_is_forced_open_refuses_whatever_policy_a_caller_brings(tidegate: &Tidegate) {
    let caller = Caller::with_key(tidegate, ADMIN_KEY);
    let order = |state: &str| caller.put("/v1/gates/api/override", json!({"state": state, "for": "1h"})).expect(200);
    let bare = [
        json!({"policy": {"rate": {"limit": 100, "window": "1s"}}}),
        json!({"policy": {"concurrency": {"limit": 5}}}),
        json!({"policy": {"rate": {"limit": 100, "window": "1s"}, "circuit": {}}}),
    ];
    assert_eq!(order("open")["circuit"]["state"], "forced_open");
    for body in &bare {
        let entered = caller.enter("api", body.clone());
        assert_eq!(entered["refused_by"], "circuit", "{entered}");
        assert!(
            entered["retry_after_ms"].as_u64().is_some_and(|ms| (3_000_000..=3_600_000).contains(&ms)),
            "{entered}"
        );
    }
    // A stored policy without a circuit changes nothing about it, and hides nothing.
    caller.put("/v1/gates/api/policy", json!({})).expect(200);
    assert_eq!(caller.enter("api", json!({}))["refused_by"], "circuit");
    assert_eq!(caller.look("api")["circuit"]["state"], "forced_open");
    assert_eq!(order("automatic").get("circuit"), None, "there is none, and no order");
    caller.pass("api", json!({}));
    caller.send(Call::new("DELETE", "/v1/gates/api/policy")).expect(204);
    for body in bare {
        caller.pass("api", body);
    }
}

#[test]
fn in_memory_a_gate_that_is_forced_open_refuses_everyone() {
    a_gate_that_is_forced_open_refuses_whatever_policy_a_caller_brings(&Setup::locked().start());
}

#[test]
fn in_redis_a_gate_that_is_forced_open_refuses_everyone() {
    let redis = need!(testkit::redis());
    let tidegate = replica(&redis.url(), redis.prefix()).start();
    a_gate_that_is_forced_open_refuses_whatever_policy_a_caller_brings(&tidegate);
}

#[test]
fn every_replica_follows_a_policy_within_a_second() {
    let postgres = need!(testkit::postgres());
    let start = || Setup::locked().env("DATABASE_URL", &postgres.url()).start();
    let (here, there) = (start(), start());
    let [at, elsewhere] = [&here, &there].map(|replica| Caller::with_key(replica, ADMIN_KEY));
    at.put("/v1/gates/api/policy", json!({"concurrency": {"limit": 7}})).expect(200);
    wait_until(Duration::from_millis(1500), "the other to follow", || {
        elsewhere.look("api")["policy"]["concurrency"]["limit"] == 7
    });
    at.send(Call::new("DELETE", "/v1/gates/api/policy"));
    wait_until(Duration::from_millis(1500), "the other to follow", || {
        elsewhere.look("api")["policy_source"] == "default"
    });
}
