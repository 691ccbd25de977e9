//! Health, metrics and documentation: who may ask what where, and what a lost dependency changes.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use testkit::{need, wait_until};

use crate::support::{Call, MASTER_KEY, Port, SOON, Setup, Tidegate};

/// The report and its HTTP status.
fn ready(tidegate: &Tidegate) -> (u16, Value) {
    let response = tidegate.get("/health/ready");
    (response.status, response.json())
}

#[track_caller]
fn wait_for_status(tidegate: &Tidegate, status: u16, word: &str) -> Value {
    let mut last = Value::Null;
    wait_until(SOON, word, || {
        let (found, report) = ready(tidegate);
        last = report;
        found == status && last["status"] == word
    });
    last
}

fn dependency<'a>(report: &'a Value, name: &str) -> &'a Value {
    let found = report["dependencies"].as_array().unwrap().iter().find(|dependency| dependency["name"] == name);
    found.unwrap_or_else(|| panic!("{name} is missing in {report}"))
}

#[test]
fn readiness_lists_each_dependency_with_its_duration() {
    let redis = need!(testkit::redis());
    let postgres = need!(testkit::postgres());
    let kafka = need!(testkit::kafka());
    let tidegate = Setup::serve()
        .env("DATABASE_URL", &postgres.url())
        .env("REDIS_URL", &redis.url())
        .env("KAFKA_BROKERS", &kafka.brokers())
        .env("KAFKA_TOPIC", kafka.topic())
        .env("KAFKA_CONSUMER_GROUP", kafka.topic())
        .start();
    let report = wait_for_status(&tidegate, 200, "ready");
    for (name, is_required) in [("database", true), ("redis", false), ("kafka", true)] {
        let dependency = dependency(&report, name);
        assert_eq!((&dependency["ok"], &dependency["required"]), (&true.into(), &is_required.into()), "{report}");
        assert!(dependency["duration_ms"].as_f64().is_some_and(|ms| ms < 2000.0), "{report}");
    }
    let on_ops = Call::get("/health/ready").to(tidegate.ops_addr());
    assert_eq!(on_ops.json()["status"], "ready");
    assert_eq!(on_ops.header("cache-control"), Some("no-store"));
}

#[test]
fn a_stopped_postgres_makes_it_unready_but_not_dead_and_it_recovers_alone() {
    let postgres = need!(testkit::postgres::Server::start());
    let tidegate = Setup::serve().env("DATABASE_URL", &postgres.url()).start();
    postgres.stop();
    let asked = Instant::now();
    let report = wait_for_status(&tidegate, 503, "not_ready");
    // Two seconds are a check's time; the rest is for a busy machine.
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    assert_eq!(dependency(&report, "database")["ok"], false);
    assert_eq!(tidegate.get("/health/live").status, 200);
    postgres.resume();
    wait_for_status(&tidegate, 200, "ready");

    postgres.kill();
    wait_for_status(&tidegate, 503, "not_ready");
    assert_eq!(tidegate.get("/health/live").status, 200);
    tidegate.get("/admin/tenants").expect_problem(503, "database_unavailable");
    postgres.restart();
    wait_for_status(&tidegate, 200, "ready");
    tidegate.get("/admin/tenants").expect(200);
    tidegate.stop().succeeded();
}

#[test]
fn requests_during_a_stall_of_postgres_are_answered_in_time_and_it_recovers() {
    let postgres = need!(testkit::postgres::Server::start());
    let setup = Setup::locked().env("DATABASE_URL", &postgres.url()).env("TIDEGATE__SERVER__REQUEST_TIMEOUT", "1s");
    let tidegate = setup.start();
    postgres.stop();
    // More than the pool has connections.
    let asked = Instant::now();
    thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| {
                let response = Call::get("/admin/tenants").admin().to(tidegate.addr());
                assert!([408, 503].contains(&response.status), "{response:?}");
            });
        }
    });
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    postgres.resume();
    wait_for_status(&tidegate, 200, "ready");
    wait_until(SOON, "requests to be served again", || {
        (0..40).all(|_| Call::get("/admin/tenants").admin().to(tidegate.addr()).status == 200)
    });
}

#[test]
fn a_lost_redis_is_degraded_and_no_reason_to_leave() {
    let redis = need!(testkit::redis::Server::start());
    let tidegate = Setup::serve().env("REDIS_URL", &redis.url()).start();
    wait_for_status(&tidegate, 200, "ready");
    redis.kill();
    let report = wait_for_status(&tidegate, 200, "degraded");
    assert_eq!(dependency(&report, "redis")["ok"], false);
    redis.restart();
    wait_for_status(&tidegate, 200, "ready");
}

#[test]
fn it_starts_without_redis_and_kafka_and_says_so() {
    let nobody = Port::reserve().addr().to_string();
    let redis = format!("redis://:canary@{nobody}/");
    let postgres = need!(testkit::postgres());
    let setup = || {
        let setup = Setup::serve().env("REDIS_URL", &redis).env("DATABASE_URL", &postgres.url());
        setup.env("KAFKA_BROKERS", &nobody).env("TIDEGATE_MASTER_KEY", MASTER_KEY)
    };
    let refusing = setup().spawn();
    wait_until(SOON, "an answer", || Call::get("/health/ready").try_to(refusing.addr()).is_ok());
    let report = wait_for_status(&refusing, 503, "not_ready");
    assert_eq!(dependency(&report, "kafka")["required"], true, "{report}");
    let report = wait_for_status(&setup().env("TIDEGATE__SERVER__ROLES", "worker").start(), 200, "degraded");
    assert_eq!(dependency(&report, "kafka")["required"], false, "{report}");
    let tidegate = setup().env("TIDEGATE__KAFKA__WHEN_AWAY", "database").start();
    let report = wait_for_status(&tidegate, 200, "degraded");
    for name in ["redis", "kafka"] {
        assert_eq!(dependency(&report, name)["ok"], false, "{report}");
        assert!(dependency(&report, name)["error"].is_string(), "{report}");
    }
    assert!(!report.to_string().contains("canary") && !tidegate.output().contains("canary"));
}

#[test]
fn metrics_are_on_the_ops_listener_only_and_the_api_is_not() {
    let tidegate = Setup::serve().start();
    tidegate.get("/v1/me").expect(200);
    tidegate.get("/metrics").expect_problem(404, "unknown_route");
    let metrics = Call::get("/metrics").to(tidegate.ops_addr());
    assert_eq!(metrics.status, 200);
    assert!(metrics.header("content-type").is_some_and(|kind| kind.starts_with("text/plain")), "{metrics:?}");
    let counted = "tidegate_http_requests_total{method=\"GET\",route=\"/v1/me\",status=\"2xx\"} 1";
    assert!(metrics.body.contains(counted), "{}", metrics.body);
    for path in ["/admin/tenants", "/v1/me", "/docs", "/openapi.json"] {
        Call::get(path).to(tidegate.ops_addr()).expect_problem(404, "unknown_route");
    }
}

#[test]
fn a_stranger_cannot_grow_the_metrics() {
    let tidegate = Setup::serve().start();
    let series = || Call::get("/metrics").to(tidegate.ops_addr()).body.lines().count();
    let call = |number: usize| Call::new(&format!("M{number}"), &format!("/nowhere/{number}")).to(tidegate.addr());
    drop(call(0));
    // Being asked is counted, too: the second answer holds the first question.
    series();
    let before = series();
    (1..200).for_each(|number| drop(call(number)));
    assert_eq!(series(), before);
}

#[test]
fn the_documentation_needs_no_other_host() {
    let tidegate = Setup::serve().start();
    let page = tidegate.get("/docs");
    assert_eq!(page.status, 200);
    assert!(page.header("content-type").is_some_and(|kind| kind.starts_with("text/html")), "{page:?}");
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("connect-src 'self'"), "{policy}");
    for foreign in ["http://", "https://", "src=\"//", "href=\"//", "@import"] {
        assert!(!page.body.contains(foreign), "{foreign} is in the page");
    }
    assert!(page.body.contains("openapi.json"));
    let document = tidegate.get("/openapi.json");
    assert_eq!(document.header("content-type"), Some("application/json"));
    assert!(document.json()["paths"].as_object().is_some_and(|paths| paths.len() >= 6));
}
