//! Bars 5 and 6 with Kafka: PostgreSQL dies and loses its connections under load, Redis is killed, stopped and emptied. No
//! offset passes a record that is not written, so nothing is lost; events are accepted all the while.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use testkit::{
    Unavailable, kafka, need, postgres,
    proxy::{FaultProxy, Faults},
    receiver::Receiver,
    redis, wait_until,
};

use super::{Load, assert_nothing_lost, member, send_patiently, wait_until_shared};
use crate::{
    dispatch::{LATER, replica, subscribe},
    support::{Backend, Call, Tidegate, on_topic, size},
};

fn servers() -> Result<(postgres::Server, kafka::Shared), Unavailable> {
    Ok((postgres::Server::start()?, testkit::kafka()?))
}

#[test]
fn a_database_that_dies_loses_nothing_and_events_are_accepted_meanwhile() {
    let (server, kafka) = need!(servers());
    let receiver = Receiver::start();
    let setup = on_topic(replica(&Backend::Sqlite), &kafka.brokers(), kafka.topic());
    let tidegate = setup.env("DATABASE_URL", &server.url()).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({}));
    let load = Load::new(10, 20);
    let mut slowest = Duration::ZERO;
    thread::scope(|scope| {
        let _load = load.begin(scope, addr);
        for outage in 0..size(2, 10) {
            receiver.received_blocking(100 * (outage + 1), LATER);
            server.kill();
            let before = load.sent();
            wait_until(LATER, "events to be accepted without a database", || load.sent() >= before + 50);
            server.restart();
            let (back, seen) = (Instant::now(), receiver.count());
            wait_until(LATER, "deliveries again", || receiver.count() > seen);
            slowest = slowest.max(back.elapsed());
        }
        for _ in 0..size(20, 200) {
            let storm = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
            drop(server.sql(storm));
            let before = load.sent();
            wait_until(LATER, "the next batch", || load.sent() > before);
        }
    });
    println!("delivering {slowest:?} after the database answers; {} events", load.sent());
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    let twice = assert_nothing_lost(addr, &receiver, load.sent());
    println!("{twice} of {} twice", load.sent());
}

/// Balancers must not take away who still does its job; a worker cannot, and says so.
#[test]
fn a_replica_that_takes_events_alone_is_ready_without_the_database() {
    let (server, kafka) = need!(servers());
    let setup = |roles: &str| {
        let setup = on_topic(member(&Backend::Sqlite, roles), &kafka.brokers(), kafka.topic());
        setup.env("DATABASE_URL", &server.url())
    };
    let [door, worker, both] = ["api", "worker", "api,worker"].map(|roles| setup(roles).start());
    let fallback = setup("api").env("TIDEGATE__KAFKA__WHEN_AWAY", "database").start();
    subscribe(door.addr(), "http://127.0.0.1:9", json!({}));
    server.kill();
    for (replica, status) in [(&door, 200), (&fallback, 200), (&worker, 503), (&both, 503)] {
        let word = if status == 200 { "degraded" } else { "not_ready" };
        wait_until(LATER, word, || {
            let answer = replica.get("/health/ready");
            (answer.status, &answer.json()["status"]) == (status, &json!(word))
        });
    }
    for replica in [&door, &fallback] {
        Call::post("/v1/events", json!({"type": "a.b", "data": {}})).to(replica.addr()).expect(202);
    }
}

/// Its offsets are all that the next worker knows of what it has read. What it could not write counts as waiting.
#[test]
fn a_worker_that_leaves_while_the_database_is_away_commits_no_record_that_is_not_written() {
    const EVENTS: usize = 50;
    let (server, kafka) = need!(servers());
    let receiver = Receiver::start();
    let setup = on_topic(replica(&Backend::Sqlite), &kafka.brokers(), kafka.topic()).env("DRAIN_TIMEOUT", "1s");
    let tidegate = setup.env("DATABASE_URL", &server.url()).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({}));
    wait_until_shared(&[&tidegate]);
    server.kill();
    send_patiently(0..EVENTS, addr);
    let in_vain = || tidegate.metric("tidegate_kafka_write_retries_total");
    wait_until(LATER, "records to be read and not written", || in_vain() >= Some(3.0));
    let waiting = |worker: &Tidegate| worker.metric("tidegate_kafka_lag_records");
    wait_until(LATER, "the lag to tell of them", || waiting(&tidegate) == Some(EVENTS as f64));
    tidegate.terminate();
    let ended = tidegate.wait(LATER);
    server.restart();
    let again = ended.again().start();
    assert_nothing_lost(addr, &receiver, EVENTS);
    wait_until(LATER, "the lag to tell of none", || waiting(&again) == Some(0.0));
}

/// librdkafka remembers that a partition was paused, also while another worker has it.
#[test]
fn partitions_that_were_taken_away_while_reading_waited_are_read_when_they_come_back() {
    for protocol in ["classic", "consumer"] {
        let (postgres, kafka) = need!(testkit::postgres().and_then(|postgres| Ok((postgres, testkit::kafka()?))));
        let proxy = FaultProxy::start(("127.0.0.1", postgres.port()));
        let slow_url = postgres.url().replace(&postgres.port().to_string(), &proxy.port().to_string());
        let backend = Backend::Kafka(postgres, kafka);
        let worker = || member(&backend, "worker").env("TIDEGATE__KAFKA__GROUP_PROTOCOL", protocol);
        let (receiver, door) = (Receiver::start(), member(&backend, "api").start());
        let first = worker().env("DATABASE_URL", &slow_url).start();
        subscribe(door.addr(), &receiver.url("/"), json!({}));
        wait_until_shared(&[&first]);
        let load = Load::new(10, 20);
        thread::scope(|scope| {
            let _load = load.begin(scope, door.addr());
            proxy.set(Faults { black_hole: true, ..Faults::default() });
            let has_paused = || first.metric("tidegate_kafka_pauses_total") > Some(0.0);
            wait_until(LATER, "reading to wait for the database", has_paused);
            let guest = worker().start();
            wait_until(LATER, "the guest to get partitions", || guest.metric("tidegate_kafka_partitions") > Some(0.0));
            proxy.set(Faults::default());
            wait_until_shared(&[&first, &guest]);
            guest.stop().succeeded();
            wait_until_shared(&[&first]);
        });
        let twice = assert_nothing_lost(door.addr(), &receiver, load.sent());
        println!("{protocol}: {twice} of {} twice", load.sent());
    }
}

#[test]
fn redis_killed_stopped_and_emptied_loses_nothing() {
    let redis = need!(redis::Server::start());
    let backend = need!(Backend::kafka());
    let receiver = Receiver::start();
    let tidegate = replica(&backend).env("REDIS_URL", &redis.url()).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({}));
    let load = Load::new(10, 50);
    thread::scope(|scope| {
        let _load = load.begin(scope, addr);
        // Eight times as many as usually come in a quarter of a second; the median, because the machine may stand still.
        let more = || {
            let mut took = [(); 8].map(|()| {
                let (seen, begun) = (receiver.count(), Instant::now());
                wait_until(LATER, "deliveries to go on", || receiver.count() >= seen + 50);
                begun.elapsed()
            });
            took.sort_unstable();
            took[4]
        };
        more();
        let usual = more();
        // Beside other tests, which come and go meanwhile, half of the usual pace is as good as all of it.
        let least = size(50, 80) as f64 / 100.0;
        let assert_usual = |fault: &str| {
            let took = more();
            println!("{took:?} for what usually takes {usual:?}, {fault}");
            assert!(took.mul_f64(least) <= usual, "{took:?} for what usually takes {usual:?}, {fault}");
        };
        redis.kill();
        assert_usual("without Redis");
        redis.restart();
        assert_usual("with an empty Redis");
        redis.stop();
        assert_usual("with a Redis that is silent");
        redis.resume();
        redis.cli(&["FLUSHALL"]);
        assert_usual("after all was forgotten");
    });
    let twice = assert_nothing_lost(addr, &receiver, load.sent());
    println!("{twice} of {} twice", load.sent());
}
