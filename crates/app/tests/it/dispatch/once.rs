//! Bar 17: one id is one event, however often and wherever it is sent, and everyone gets the same answer.

use std::thread;

use serde_json::json;
use testkit::{need, receiver::Receiver};

use super::{deliveries, replica, subscribe, wait_for_status, wait_for_subscriptions};
use crate::support::{Backend, Call, Response, each_queue};

each_queue!(one_request_with_one_id_twice_is_one_event_or_a_conflict);

fn one_request_with_one_id_twice_is_one_event_or_a_conflict(backend: &Backend) {
    let tidegate = replica(backend).start();
    let event = |id: &str, n: usize| json!({"id": id, "type": "a.b", "data": {"n": n}});
    let events = json!([event("a", 1), event("b", 1), event("a", 2), event("a", 1), event("b", 1)]);
    let answer = Call::post("/v1/events", events).to(tidegate.addr()).expect(202);
    assert_eq!((&answer["accepted"], &answer["rejected"]), (&json!(4), &json!(1)), "{answer}");
    assert_eq!(answer["results"][2]["error"]["code"], "event_conflict", "{answer}");
}

#[test]
fn a_hundred_parallel_posts_of_one_id_are_one_event() {
    let backend = Backend::Postgres(need!(testkit::postgres()));
    let receiver = Receiver::start();
    let fleet = [replica(&backend).start(), replica(&backend).start()];
    subscribe(fleet[0].addr(), &receiver.url("/"), json!({}));
    fleet.iter().for_each(|replica| wait_for_subscriptions(replica.addr(), 1));

    let event = json!({"id": "same", "type": "a.b", "data": {"n": 1}, "ordering_key": "k"});
    let answers: Vec<Response> = thread::scope(|scope| {
        let post = |turn: usize| {
            let (call, addr) = (Call::post("/v1/events", event.clone()), fleet[turn % 2].addr());
            scope.spawn(move || call.to(addr))
        };
        let posts: Vec<_> = (0..100).map(post).collect();
        posts.into_iter().map(|post| post.join().unwrap()).collect()
    });
    for answer in &answers {
        assert_eq!((answer.status, &answer.body), (202, &answers[0].body));
    }
    wait_for_status(fleet[0].addr(), "same", "delivered");
    assert_eq!((deliveries(fleet[0].addr(), "").len(), receiver.count()), (1, 1));

    for replica in &fleet {
        for other in [
            json!({"id": "same", "type": "a.b", "data": {"n": 2}, "ordering_key": "k"}),
            json!({"id": "same", "type": "a.c", "data": {"n": 1}, "ordering_key": "k"}),
            json!({"id": "same", "type": "a.b", "data": {"n": 1}}),
        ] {
            let problem = Call::post("/v1/events", other).to(replica.addr()).expect_problem(409, "event_conflict");
            assert_eq!(problem["field"], "id");
        }
    }
    assert_eq!(receiver.count(), 1);
}
