//! Bars 11 and 16: rows that nobody would take come back within a minute, and what only a limit puts off spends nothing
//! and is seen. And every metric that is exported is explained.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::{need, receiver::Receiver, wait_until};

use super::{deliveries, event_id, replica, send_all, subscribe, tomorrow};
use crate::support::{Backend, Call, each_backend};

each_backend! {
    a_thousand_deferrals_spend_no_attempt_and_are_seen
}

#[test]
fn leases_that_are_expired_missing_or_too_long_come_back_behind_ten_thousand_others() {
    const STUCK: usize = 30;
    let postgres = need!(testkit::postgres());
    let backend = Backend::Postgres(postgres.clone());
    let receiver = Receiver::start();
    let tidegate = replica(&backend).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({}));
    let later = tomorrow();
    send_all(addr, (0..STUCK).map(|n| json!({"id": event_id(n), "type": "a.b", "data": n, "deliver_at": later})));
    // Calls that another worker makes and that take long: older, in flight, and not to be touched.
    postgres.sql(
        "INSERT INTO deliveries (id, tenant_id, event_uid, subscription_id, status, fence, lease_owner, due_at)
         SELECT left(d.id, 20) || lpad(n::text, 10, '0'), d.tenant_id, d.event_uid, d.subscription_id, 'processing', 1,
           'elsewhere', now() + interval '10 minutes'
         FROM (SELECT * FROM deliveries ORDER BY id LIMIT 1) d, generate_series(1, 10000) n",
    );
    let begun = Instant::now();
    postgres.sql(
        "UPDATE deliveries SET status = 'processing', lease_owner = 'ghost', fence = 1, due_at = CASE n % 3
           WHEN 0 THEN now() - interval '1 hour' WHEN 1 THEN now() + interval '10 years' END
         FROM (SELECT id AS stuck, row_number() OVER (ORDER BY id) AS n FROM deliveries WHERE status = 'pending') s
         WHERE id = stuck",
    );
    receiver.received_blocking(STUCK, Duration::from_secs(60));
    println!("{STUCK} came back within {:?}", begun.elapsed());
    wait_until(Duration::from_secs(60), "all to be delivered", || deliveries(addr, "&status=delivered").len() == STUCK);
    assert_eq!((receiver.distinct(), receiver.count()), (STUCK, STUCK));
    assert_eq!(tidegate.metric("tidegate_deliveries_rescued_total"), Some(20.0), "expired leases need no rescue");
    let held =
        postgres.sql("SELECT count(*) FROM deliveries WHERE lease_owner = 'elsewhere' AND status = 'processing'");
    assert_eq!(held[0][0].as_deref(), Some("10000"));
}

fn a_thousand_deferrals_spend_no_attempt_and_are_seen(backend: &Backend) {
    const EVENTS: usize = 1000;
    let receiver = Receiver::start();
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({"rate_limit": 1}));
    let begun = Instant::now();
    send_all(addr, (0..EVENTS).map(|n| json!({"id": event_id(n), "type": "a.b", "data": n})));
    wait_until(Duration::from_secs(60), "the lag of what is put off", || {
        tidegate.metric("tidegate_delivery_lag_seconds") > Some(5.0)
    });
    let all = deliveries(addr, "");
    let allowed = usize::try_from(begun.elapsed().as_secs()).unwrap() + 2;
    let attempted = all.iter().filter(|one| one["attempts"] != 0).count();
    assert!(attempted >= 1 && attempted <= allowed, "{attempted} attempts at 1/s in {:?}", begun.elapsed());
    assert!(all.iter().all(|one| one["attempts"].as_u64() <= Some(1)), "no attempt was spent by being put off");
    let deferred = all.iter().filter(|one| one["deferrals"].as_u64() > Some(0) && one["attempts"] == 0).count();
    assert!(deferred > EVENTS / 2, "{deferred} of {EVENTS} were put off");
    let throttled = || tidegate.metric("tidegate_deliveries_total{result=\"throttled\"}");
    wait_until(Duration::from_secs(60), "all of them to be counted", || throttled() >= Some(deferred as f64));
    assert_eq!(all.len(), EVENTS);
}

#[test]
fn every_metric_of_dispatch_is_exported_and_explained() {
    let docs = include_str!("../../../../../docs/dispatch.md");
    let receiver = Receiver::start();
    let tidegate = replica(&Backend::Sqlite).start();
    let addr = tidegate.addr();
    receiver.set_path("/bad", testkit::receiver::Answer::Status(500));
    subscribe(addr, &receiver.url("/"), json!({"event_types": ["good"], "rate_limit": 1}));
    subscribe(addr, &receiver.url("/bad"), json!({"event_types": ["bad"], "retry_schedule": ["100ms"]}));
    send_all(addr, (0..20).map(|n| json!({"type": if n % 2 == 0 { "good" } else { "bad" }, "data": n})));
    for name in [
        "tidegate_events_total{result=\"accepted\"}",
        "tidegate_deliveries_total{result=\"delivered\"}",
        "tidegate_deliveries_total{result=\"retrying\"}",
        "tidegate_deliveries_total{result=\"throttled\"}",
        "tidegate_attempts_total{class=\"success\"}",
        "tidegate_attempts_total{class=\"server_error\"}",
        "tidegate_attempt_seconds_count",
        "tidegate_delivery_latency_seconds_count",
        "tidegate_deliveries_in_flight",
        "tidegate_deliveries_waiting",
        "tidegate_delivery_lag_seconds",
        "tidegate_gate_refusals_total{by=\"rate\"}",
        "tidegate_circuits{state=\"open\"}",
        "tidegate_circuits{state=\"closed\"}",
    ] {
        wait_until(Duration::from_secs(60), format!("{name} to be exported"), || tidegate.metric(name).is_some());
        let family = name.split('{').next().unwrap().trim_end_matches("_count");
        assert!(docs.contains(family), "{family} is not in docs/dispatch.md");
    }
    let text = Call::get("/metrics").to(tidegate.ops_addr()).body;
    assert!(!text.contains("sub_0") && !text.contains("127.0.0.1:"), "a label names a subscription or a receiver");
    assert!(text.contains("tidegate_attempt_seconds_bucket"), "durations are histograms");
}
