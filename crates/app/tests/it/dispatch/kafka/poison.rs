//! Bar 9: nonsense among good records. All good ones are delivered, all bad ones are kept with their bytes and a reason, and
//! nobody waits for them.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use dispatch::kafka::{Config, Outgoing, Producer, VERSION, config::Surroundings};
use serde_json::{Value, json};
use testkit::{need, receiver::Receiver, wait_until};

use super::{assert_nothing_lost, event, send_patiently, wait_until_shared, ways};
use crate::{
    dispatch::{LATER, replica, say, subscribe},
    support::{Backend, Call, size},
};

/// Every kind of nonsense, and the reason it gets.
fn nonsense(kind: usize) -> (u32, &'static str, Vec<u8>, &'static str) {
    let good = br#"{"id":"p","type":"a.b","data":1}"#.to_vec();
    match kind % 8 {
        0 => (VERSION, "default", br#"{"id":"p","type":"a.b","da"#.to_vec(), "unreadable"),
        1 => (VERSION, "default", b"{\"id\":\"p\",\"type\":\"a.b\",\"data\":\"\xff\xfe\"}".to_vec(), "unreadable"),
        2 => (VERSION + 1, "default", good, "unknown_version"),
        3 => (VERSION, "No Such", good, "bad_tenant"),
        4 => (VERSION, "default", br#"{"id":"p","type":"not a type","data":1}"#.to_vec(), "invalid_event"),
        5 => (VERSION, "ghost", good, "bad_tenant"),
        6 => {
            let late = br#"{"id":"p","type":"a.b","data":1,"deliver_at":"9999-12-31T23:59:59-00:01"}"#;
            (VERSION, "default", late.to_vec(), "unreadable")
        }
        _ => {
            let data = "x".repeat(200_000);
            (
                VERSION,
                "default",
                format!(r#"{{"id":"p","type":"a.b","data":"{data}"}}"#).into_bytes(),
                "event_too_large",
            )
        }
    }
}

fn producer_config(brokers: &str, topic: &str) -> Config {
    let table: toml::Table = include_str!("../../../../../../config/default.toml").parse().unwrap();
    let mut section = table["kafka"].clone();
    section["brokers"] = vec![brokers.to_owned()].into();
    section["topic"] = topic.into();
    section["delivery_timeout"] = "20s".into();
    section["partitions"] = 6.into();
    let around = Surroundings { is_postgres: true, host: "test", port: 0 };
    Config::new(section.try_into().unwrap(), &around).unwrap().unwrap()
}

#[tokio::test]
async fn nonsense_is_kept_with_its_reason_and_holds_up_nobody() {
    let backend = need!(Backend::kafka());
    let Backend::Kafka(_, kafka) = &backend else { unreachable!() };
    let receiver = Receiver::start();
    let tidegate = replica(&backend).env("TIDEGATE__DISPATCH__MAX_EVENT", "100KiB").start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({}));
    // What is sent before it has its partitions waits for those, and not for nonsense.
    wait_until_shared(&[&tidegate]);
    let tasks = platform::shutdown::Tasks::new();
    let producer = Producer::start(producer_config(&kafka.brokers(), kafka.topic()), 1 << 20, &tasks).await.unwrap();
    let (good, bad) = (size(600, 10_000), size(60, 1000));
    let mut expected: BTreeMap<&str, usize> = BTreeMap::new();
    for number in 0..good {
        let value = event(number).to_string().into_bytes();
        let mut records = vec![(VERSION, "default", format!("k{number}"), value)];
        if number % (good / bad) == 0 {
            let (version, tenant, value, reason) = nonsense(number / (good / bad));
            *expected.entry(reason).or_default() += 1;
            records.push((version, tenant, format!("k{number}"), value));
        }
        let outgoing: Vec<Outgoing<'_>> = records
            .iter()
            .map(|(version, tenant, key, value)| Outgoing {
                version: *version,
                tenant,
                key,
                id: None,
                value,
                catalog_version: 0,
                traceparent: None,
            })
            .collect();
        for sent in producer.send_all(&outgoing).await {
            sent.unwrap();
        }
    }
    tokio::task::spawn_blocking(move || look(&backend, addr, &receiver, good, bad, &expected)).await.unwrap();
    assert!(tasks.stop(LATER).await);
    drop(tidegate);
}

/// A header whose name was not UTF-8 made the client panic, the reader began anew, read the same record again, and so for ever.
#[test]
fn a_header_name_that_is_not_text_costs_its_record_and_no_partition() {
    let backend = need!(Backend::kafka());
    let Backend::Kafka(_, kafka) = &backend else { unreachable!() };
    let receiver = Receiver::start();
    let tidegate = replica(&backend).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({}));
    wait_until_shared(&[&tidegate]);
    for number in 0..6 {
        let (good, bad) = (event(number).to_string(), event(number + 6).to_string());
        let partition = i32::try_from(number).unwrap();
        kafka.produce(partition, bad.as_bytes(), (b"bad\xff\xfe", b"v"));
        kafka.produce(partition, good.as_bytes(), (b"good", b"v"));
    }
    assert_nothing_lost(addr, &receiver, 6);
    // Whose they are is not told: the header that names the tenant may be the one that could not be read.
    assert_eq!(Call::get("/v1/rejected").to(addr).expect(200)["data"], json!([]));
    let kept = Call::get("/v1/rejected?reason=bad_header&all=true").to(addr).expect(200);
    let kept = kept["data"].as_array().unwrap();
    assert_eq!(kept.len(), 6, "{kept:?}");
    let id = kept[0]["id"].as_str().unwrap();
    let first = Call::get(&format!("/v1/rejected/{id}")).to(addr).expect(200);
    let bytes = BASE64_STANDARD.decode(first["value_base64"].as_str().unwrap()).unwrap();
    assert!((6..12).any(|number| event(number).to_string().as_bytes() == bytes));
    assert!(first["detail"].as_str().unwrap().contains("not UTF-8"), "{first}");
    assert_eq!(tidegate.metric("tidegate_kafka_restarts_total").unwrap_or(0.0), 0.0);
}

/// What panics between reading and writing ends its reader, and the next one reads the same records again.
#[test]
fn a_panic_on_the_way_to_the_rows_loses_nothing() {
    for point in ["route.before", "batch.after"] {
        let backend = need!(Backend::kafka());
        let receiver = Receiver::start();
        let tidegate = replica(&backend).env("TIDEGATE_CRASH_AT", &format!("{point}:2:panic")).start();
        let addr = tidegate.addr();
        subscribe(addr, &receiver.url("/"), json!({}));
        wait_until_shared(&[&tidegate]);
        for start in 0..20 {
            send_patiently(start * 10..(start + 1) * 10, addr);
        }
        assert_nothing_lost(addr, &receiver, 200);
        // What panics after its rows are written may be the last batch: all has arrived by then.
        wait_until(LATER, point, || tidegate.metric("tidegate_kafka_restarts_total") == Some(1.0));
        assert_eq!(tidegate.metric("tidegate_task_panics_total"), Some(1.0), "{point}");
        wait_until(LATER, "all of it to be committed", || tidegate.metric("tidegate_kafka_lag_records") == Some(0.0));
    }
}

fn look(
    backend: &Backend,
    addr: std::net::SocketAddr,
    receiver: &Receiver,
    good: usize,
    bad: usize,
    expected: &BTreeMap<&str, usize>,
) {
    assert_nothing_lost(addr, receiver, good);
    // One record in ten is nonsense. In the short form the slowest tenth may have met a machine that stood still.
    let ways = ways(&receiver.requests());
    let judged = ways[size(good * 9 / 10, good - 1)];
    say(format_args!("nine events of ten took {:?} at most, all {:?}", ways[good * 9 / 10], ways[good - 1]));
    assert!(judged < Duration::from_secs(1), "{judged:?}");
    let list =
        || Call::get("/v1/rejected?all=true&limit=1000").to(addr).expect(200)["data"].as_array().unwrap().clone();
    wait_until(LATER, "every rejected record", || list().len() == bad);
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for record in list() {
        *reasons.entry(record["reason"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    let expected: BTreeMap<String, usize> =
        expected.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect();
    assert_eq!(reasons, expected);

    // The bytes are there as they were, and an operator can be done with them.
    let unreadable = Call::get("/v1/rejected?reason=unreadable&limit=1000").to(addr).expect(200);
    let bytes = |record: &Value| {
        let record = Call::get(&format!("/v1/rejected/{}", record["id"].as_str().unwrap())).to(addr).expect(200);
        BASE64_STANDARD.decode(record["value_base64"].as_str().unwrap()).unwrap()
    };
    let kept: Vec<Vec<u8>> = unreadable["data"].as_array().unwrap().iter().map(bytes).collect();
    assert!(kept.contains(&nonsense(0).2) && kept.contains(&nonsense(1).2));
    let tenants = list().iter().filter(|record| record["tenant"].is_null()).count();
    assert_eq!(tenants, expected["bad_tenant"], "a record without a tenant belongs to nobody");
    let ghost = Call::get("/v1/rejected?all=true&reason=bad_tenant&limit=1000").to(addr).expect(200);
    let details: Vec<&str> =
        ghost["data"].as_array().unwrap().iter().map(|record| record["detail"].as_str().unwrap()).collect();
    assert!(details.iter().any(|detail| detail.contains("there is no tenant \"ghost\"")), "{details:?}");
    // Whoever is made later under that name inherits nothing; records that come then are taken.
    Call::post("/admin/tenants", json!({"id": "ghost", "name": "Ghost"})).to(addr).expect(201);
    for inherited in ["/v1/events", "/v1/rejected"] {
        assert_eq!(Call::get(inherited).header("x-tenant", "ghost").to(addr).expect(200)["data"], json!([]));
    }
    let gone = format!("/v1/rejected/{}", list()[0]["id"].as_str().unwrap());
    Call::new("DELETE", &gone).to(addr).expect(204);
    Call::get(&gone).to(addr).expect_problem(404, "not_found");
    assert_eq!(list().len(), bad - 1);
    let Backend::Kafka(postgres, _) = backend else { unreachable!() };
    assert_eq!(
        postgres.sql("SELECT count(*) FROM rejected_records")[0][0].as_deref(),
        Some((bad - 1).to_string().as_str())
    );
}
