//! A new master key: `old,new`, then `new,old`, then `new`, while events flow and processes die.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use serde_json::json;
use testkit::{
    need,
    receiver::{Receiver, Secret},
    wait_until,
};

use super::{
    LATER, addrs, deliveries, replica, send, send_until_accepted, subscribe, wait_for_status, wait_for_subscriptions,
    wait_until_all_ended,
};
use crate::support::{Backend, Call, MASTER_KEY, Setup, Tidegate, each_backend};

each_backend! {
    a_master_key_is_rotated_and_the_old_one_can_go
}

const DONE: &str = "Every secret is sealed with the first master key.";
const BATCH: usize = 20;

/// Ends the sender, also where the test fails meanwhile.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn new_key() -> String {
    "b".repeat(64)
}

fn with_keys(setup: Setup, keys: &[&str]) -> Setup {
    setup.env("TIDEGATE_MASTER_KEY", &keys.join(","))
}

/// What only the old master key could open was lost after the rotation, and nothing said so.
fn a_master_key_is_rotated_and_the_old_one_can_go(backend: &Backend) {
    let receiver = Receiver::start();
    let new_key = new_key();
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    let made =
        subscribe(addr, &receiver.url("/"), json!({"id": "s", "headers": {"x-token": "t"}, "signatures": "v1+v1a"}));
    receiver.verify_with([Secret::new(made["secret"].as_str().unwrap())]);
    for number in 0..60 {
        subscribe(addr, "http://127.0.0.1:9/", json!({"id": format!("other{number}"), "event_types": ["other"]}));
    }
    let too_early = with_keys(tidegate.stop().succeeded().again(), &[&new_key]).run();
    assert_eq!(too_early.code, Some(2), "{}", too_early.output);
    let waiting = with_keys(too_early.again(), &[MASTER_KEY, &new_key]).start();
    // It may die half-way.
    let dying = with_keys(waiting.stop().succeeded().again(), &[&new_key, MASTER_KEY]).start();
    let rotating = dying.kill().start();
    send(addr, json!({"id": "during", "type": "a.b", "data": {}}));
    wait_until(LATER, "the rotation to end", || rotating.output().contains(DONE));

    let setup = rotating.stop().succeeded().again();
    let tidegate = with_keys(setup, &[&new_key.to_uppercase()]).start();
    send(addr, json!({"id": "after", "type": "a.b", "data": {}}));
    for event in ["during", "after"] {
        wait_for_status(addr, event, "delivered");
    }
    assert!(receiver.requests().iter().all(|request| request.header("x-token") == "t"));
    let listed = Call::get("/v1/subscriptions?limit=100").to(addr).expect(200);
    let listed = listed["data"].as_array().unwrap();
    assert!(listed.len() == 61 && listed.iter().all(|subscription| subscription["state"] == "active"));
    assert_eq!(Call::get("/v1/subscriptions/s").to(addr).expect(200)["public_keys"], made["public_keys"]);

    let old = with_keys(tidegate.stop().succeeded().again(), &[MASTER_KEY]).run();
    assert_eq!(old.code, Some(2), "{}", old.output);
    assert!(old.output.contains("security.master_key") && old.output.contains("TIDEGATE_MASTER_KEY"), "{}", old.output);
}

/// Bar 49: in the order that the README says, no call fails and none is late, whichever replica is asked.
#[test]
fn a_fleet_gets_a_new_master_key_under_load() {
    let backend = Backend::Postgres(need!(testkit::postgres()));
    let receiver = Receiver::start();
    let new_key = new_key();
    let mut fleet: Vec<Tidegate> = (0..2).map(|_| replica(&backend).start()).collect();
    let all = addrs(&fleet);
    let made = subscribe(all[0], &receiver.url("/"), json!({}));
    receiver.verify_with([Secret::new(made["secret"].as_str().unwrap())]);
    wait_for_subscriptions(all[1], 1);
    let is_over = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let over = Over(&is_over);
        let sender = scope.spawn(|| {
            let mut sent = 0;
            while !is_over.load(Relaxed) {
                let mut turns = all.iter().cycle().skip(sent / BATCH);
                send_until_accepted(sent..sent + BATCH, || *turns.next().unwrap());
                sent += BATCH;
            }
            sent
        });
        for keys in [&[MASTER_KEY, &new_key][..], &[&new_key, MASTER_KEY], &[&new_key]] {
            fleet = fleet.drain(..).map(|one| with_keys(one.stop().succeeded().again(), keys).start()).collect();
            if let [first, _] = keys
                && *first == new_key
            {
                // Whichever replica sealed with the old one until it was stopped.
                wait_until(LATER, "the rotation to end", || fleet.iter().all(|one| one.output().contains(DONE)));
            }
        }
        drop(over);
        sender.join().unwrap()
    });
    wait_until_all_ended(all[0], sent);
    let once = |delivery: &serde_json::Value| delivery["status"] == "delivered" && delivery["attempts"] == 1;
    let all = deliveries(all[0], "");
    assert!(all.iter().all(once), "{:?}", all.iter().find(|delivery| !once(delivery)));
}
