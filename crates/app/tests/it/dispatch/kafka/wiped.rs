//! Bar 4: the topic's log is gone, after its records were taken in. What is due is delivered, and new events go on.

use std::{fs, time::Duration};

use serde_json::json;
use testkit::{need, receiver::Receiver, wait_until};

use super::{Own, assert_nothing_lost, event, send_patiently};
use crate::dispatch::{LATER, statuses, subscribe};
use crate::support::Call;

const EVENTS: usize = 50;

#[test]
fn rows_are_delivered_when_the_log_of_the_topic_is_wiped() {
    let own = need!(Own::start());
    let receiver = Receiver::start();
    let tidegate = own.replica().env("TIDEGATE__KAFKA__DELIVERY_TIMEOUT", "800ms").start();
    let addr = tidegate.addr();
    let subscription = subscribe(addr, &receiver.url("/"), json!({}));
    let path = format!("/v1/subscriptions/{}", subscription["id"].as_str().unwrap());
    // Paused, it keeps its events: taken in, and not delivered.
    Call::new("POST", &format!("{path}/pause")).to(addr).expect(200);
    send_patiently(0..EVENTS, addr);
    wait_until(LATER, "every event to be taken in", || statuses(addr).values().sum::<usize>() == EVENTS);
    assert_eq!(receiver.count(), 0);

    own.broker.kill();
    let mut wiped = 0;
    for folder in fs::read_dir(own.broker.folder().join("data")).unwrap().map(|entry| entry.unwrap().path()) {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("events.pending-") || name.starts_with("__consumer_offsets-") {
            fs::remove_dir_all(&folder).unwrap();
            wiped += 1;
        }
    }
    assert!(wiped >= 6, "{wiped} folders of the topic");
    Call::new("POST", &format!("{path}/resume")).to(addr).expect(200);
    wait_until(Duration::from_secs(60), "what is due, without Kafka", || {
        statuses(addr) == [("delivered".to_owned(), EVENTS)].into()
    });
    own.broker.restart();
    wait_until(LATER, "events to be accepted again", || Call::post("/v1/events", event(EVENTS)).to(addr).status == 202);
    send_patiently(EVENTS + 1..2 * EVENTS, addr);
    assert_nothing_lost(addr, &receiver, 2 * EVENTS);
}
