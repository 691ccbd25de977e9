//! `ordering: key`: first in, first out for each key; a head that fails holds its key and no other.

use std::collections::BTreeMap;

use serde_json::json;
use testkit::receiver::{Answer, Behaviour, Receiver};

use super::{LATER, replica, send, subscribe, wait_for_status, wait_until_ended};
use crate::support::{Backend, Call, Connection, each_backend, each_queue};

each_queue! {
    a_failing_head_holds_its_key_and_no_other
    events_of_one_request_keep_their_order_however_it_arrives
}

each_backend! {
    order_is_kept_for_each_key_through_failures
}

fn a_failing_head_holds_its_key_and_no_other(backend: &Backend) {
    let receiver = Receiver::start();
    receiver.set(Answer::Status(500));
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({"ordering": "key", "retry_schedule": ["1h", "1h"]}));
    let event = |id: &str, key: &str| json!({"id": id, "type": "a.b", "data": {}, "ordering_key": key});
    send(addr, event("a1", "a"));
    let head = wait_for_status(addr, "a1", "retrying");
    receiver.set(Behaviour::default());
    send(addr, event("a2", "a"));
    send(addr, event("b1", "b"));
    wait_for_status(addr, "b1", "delivered");
    assert_eq!(wait_for_status(addr, "a2", "pending")["attempts"], 0);

    Call::new("POST", &format!("/v1/deliveries/{}/retry", head["id"].as_str().unwrap())).to(addr).expect(202);
    wait_for_status(addr, "a2", "delivered");
    let arrived: Vec<String> = receiver.requests().iter().map(|request| request.id().to_owned()).collect();
    assert_eq!(arrived, ["a1", "b1", "a1", "a2"]);
}

/// The events of one request are taken in as they arrive: here most of them together, and right behind them a few that are
/// sooner looked up and written. Their ids fall: sorted by them, they would come the other way round.
fn events_of_one_request_keep_their_order_however_it_arrives(backend: &Backend) {
    const REQUESTS: usize = 20;
    const EVENTS: usize = 200;
    let receiver = Receiver::start();
    let tidegate = replica(backend).start();
    subscribe(tidegate.addr(), &receiver.url("/"), json!({"ordering": "key", "max_concurrency": 1000}));
    for request in 0..REQUESTS {
        let name = ["ordering_key", r"ordering\u005fkey"][request % 2];
        let line = |number| {
            let number = EVENTS - number;
            format!(r#"{{"id":"{request}-{number:03}","type":"a.b","data":{{}},"{name}":"k{request}"}}"#) + "\n"
        };
        let (most, few): (String, String) =
            ((0..EVENTS - 5).map(line).collect(), (EVENTS - 5..EVENTS).map(line).collect());
        let head = format!(
            "POST /v1/events HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/x-ndjson\r\n\
             content-length: {}\r\n\r\n{most}",
            most.len() + few.len()
        );
        let mut connection = Connection::open(tidegate.addr()).unwrap();
        connection.send(head.as_bytes()).unwrap();
        connection.send(few.as_bytes()).unwrap();
        assert_eq!(connection.receive().unwrap().expect(202)["accepted"], EVENTS);
    }
    let mut last: BTreeMap<String, String> = BTreeMap::new();
    for arrived in receiver.received_blocking(REQUESTS * EVENTS, LATER) {
        let (request, number) = arrived.id().split_once('-').unwrap();
        let before = last.insert(request.to_owned(), number.to_owned());
        assert!(before.is_none_or(|before| before.as_str() > number), "{} came too late", arrived.id());
    }
}

fn order_is_kept_for_each_key_through_failures(backend: &Backend) {
    // Every second call fails. A circuit judges a rate by twenty calls, so each subscription gets sixteen.
    const SUBSCRIPTIONS: usize = 4;
    const KEYS: usize = 2;
    const EACH: usize = 4;
    let receiver = Receiver::start();
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    for subscription in 0..SUBSCRIPTIONS {
        let (only, path) = (format!("t{subscription}"), format!("/{subscription}"));
        receiver.set_path(&path, Behaviour { fail_first_of_each: 1, ..Behaviour::default() });
        let settings = json!({"event_types": [only], "ordering": "key", "retry_schedule": ["10ms", "10ms"]});
        subscribe(addr, &receiver.url(&path), settings);
    }
    for number in 0..EACH {
        for subscription in 0..SUBSCRIPTIONS {
            for key in 0..KEYS {
                let (id, only) = (format!("{subscription}_{key}-{number}"), format!("t{subscription}"));
                send(addr, json!({"id": id, "type": only, "data": {}, "ordering_key": key.to_string()}));
            }
        }
    }
    receiver.received_blocking(2 * SUBSCRIPTIONS * KEYS * EACH, LATER);
    wait_until_ended(addr);
    let mut by_key: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for request in receiver.requests() {
        let (key, number) = request.id().split_once('-').unwrap();
        by_key.entry(key.to_owned()).or_default().push(number.to_owned());
    }
    let expected: Vec<String> = (0..EACH).flat_map(|number| [number.to_string(), number.to_string()]).collect();
    assert_eq!(by_key.len(), SUBSCRIPTIONS * KEYS);
    assert!(by_key.values().all(|order| *order == expected), "{by_key:?}");
}
