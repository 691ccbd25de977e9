//! Thousands of subscriptions, one event each, through the topic and three workers: every one is delivered, to the right
//! receiver and once.

use std::{collections::BTreeMap, net::SocketAddr, thread, time::Instant};

use serde_json::json;
use testkit::{need, receiver::Receiver};

use super::{assert_nothing_lost, member, wait_until_shared};
use crate::{
    dispatch::{event_id, say, send_all, subscribe},
    support::{Backend, Tidegate, size},
};

const DOORS: usize = 4;

/// Makes them over several connections at a time.
fn subscribe_each(addr: SocketAddr, receiver: &Receiver, subscriptions: usize) {
    thread::scope(|scope| {
        for door in 0..DOORS {
            scope.spawn(move || {
                for number in (door..subscriptions).step_by(DOORS) {
                    let only = json!({"event_types": [format!("t{number}")]});
                    subscribe(addr, &receiver.url(&format!("/{}", event_id(number))), only);
                }
            });
        }
    });
}

fn run(subscriptions: usize) {
    let backend = need!(Backend::kafka());
    let receiver = Receiver::start();
    let door = member(&backend, "api").start();
    // The lease of other tests is short on purpose; a slow machine would not write ten thousand outcomes within it.
    let worker = |_| member(&backend, "worker").env("TIDEGATE__DISPATCH__LEASE", "60s").start();
    let workers: Vec<Tidegate> = (0..3).map(worker).collect();
    wait_until_shared(&workers.iter().collect::<Vec<_>>());
    subscribe_each(door.addr(), &receiver, subscriptions);
    let begun = Instant::now();
    let event = |number| json!({"id": event_id(number), "type": format!("t{number}"), "data": {"n": number}});
    for start in (0..subscriptions).step_by(1000) {
        send_all(door.addr(), (start..subscriptions.min(start + 1000)).map(event));
    }
    let twice = assert_nothing_lost(door.addr(), &receiver, subscriptions);
    say(format_args!("{subscriptions} of {subscriptions} delivered in {:?}", begun.elapsed()));
    assert_eq!(twice, 0);
    let arrived: BTreeMap<String, String> =
        receiver.requests().into_iter().map(|request| (request.path.clone(), request.id().to_owned())).collect();
    assert!(arrived.iter().all(|(path, id)| path[1..] == *id), "an event went to another's receiver");
}

#[test]
fn every_one_of_thousands_of_subscriptions_gets_its_event() {
    for subscriptions in [1000, 5000, 10_000].into_iter().take(size(1, 3)) {
        run(subscriptions);
    }
}
