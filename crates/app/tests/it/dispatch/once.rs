//! Bar 17: one id is one event, however often and wherever it is sent and whoever dies meanwhile, and everyone gets the same
//! answer.

use std::{
    net::SocketAddr,
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use serde_json::{Value, json};
use testkit::{need, receiver::Receiver};

use super::{LATER, deliveries, replica, say, subscribe, wait_for_status, wait_for_subscriptions};
use crate::support::{Backend, Call, Response, Setup, Tidegate, each_queue, size};

each_queue!(one_request_with_one_id_twice_is_one_event_or_a_conflict);

fn one_request_with_one_id_twice_is_one_event_or_a_conflict(backend: &Backend) {
    let tidegate = replica(backend).start();
    let event = |id: &str, n: usize| json!({"id": id, "type": "a.b", "data": {"n": n}});
    let events = json!([event("a", 1), event("b", 1), event("a", 2), event("a", 1), event("b", 1)]);
    let answer = Call::post("/v1/events", events).to(tidegate.addr()).expect(202);
    assert_eq!((&answer["accepted"], &answer["rejected"]), (&json!(4), &json!(1)), "{answer}");
    assert_eq!(answer["results"][2]["error"]["code"], "event_conflict", "{answer}");
}

const POSTS: usize = 100;

/// How one of three replicas dies while all of them are asked.
#[derive(Clone, Copy, Debug)]
enum Death {
    /// At this point.
    At(&'static str),
    /// It is killed once so many posts are answered.
    After(usize),
}

/// What came of a hundred posts.
struct Posted {
    answers: Vec<Response>,
    /// Posts that the dead replica has not answered.
    unanswered: usize,
    /// What is left of it.
    dead: Setup,
}

/// Posts an event everywhere at once, while the first replica dies. Whoever gets no answer from it asks another.
fn post_at_once(mortal: Tidegate, addrs: [SocketAddr; 3], event: &Value, death: Death) -> Posted {
    let (unanswered, begin) = (AtomicUsize::new(0), Barrier::new(POSTS));
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        for turn in 0..POSTS {
            let (begin, unanswered, tell) = (&begin, &unanswered, tell.clone());
            scope.spawn(move || {
                let call = Call::post("/v1/events", event.clone());
                begin.wait();
                let answer = call.clone().try_to(addrs[turn % 3]).unwrap_or_else(|_| {
                    unanswered.fetch_add(1, Ordering::Relaxed);
                    call.to(addrs[1 + turn % 2])
                });
                tell.send(answer).unwrap();
            });
        }
        drop(tell);
        let mut answers = Vec::new();
        let dead = match death {
            Death::At(_) => mortal.wait_for_crash(LATER),
            Death::After(count) => {
                answers.extend(told.iter().take(count));
                mortal.kill()
            }
        };
        answers.extend(told);
        Posted { answers, unanswered: unanswered.load(Ordering::Relaxed), dead }
    })
}

/// Nobody is told anything else. Until Kafka's record is taken in, each repeat is a record with a time of its own.
fn assert_same(backend: &Backend, answers: Vec<Response>) {
    let body = |answer: Response| {
        let mut body = answer.expect(202);
        if matches!(backend, Backend::Kafka(..)) {
            body.as_object_mut().unwrap().remove("created_at");
        }
        body
    };
    let bodies: Vec<Value> = answers.into_iter().map(body).collect();
    assert_eq!(bodies.len(), POSTS);
    assert!(bodies.iter().all(|body| *body == bodies[0]), "{bodies:?}");
}

/// A death after another, each in the middle of a hundred posts of one event. The replicas deliver nothing themselves: what a
/// dead one had begun to deliver may arrive twice, and is another test's.
fn one_event_whoever_dies(backend: &Backend, points: &[&'static str]) {
    let kills = size(2, 30);
    let after = |kill: usize| Death::After(1 + kill * POSTS / 2 / kills);
    let deaths: Vec<Death> = points.iter().map(|point| Death::At(point)).chain((0..kills).map(after)).collect();
    let receiver = Receiver::start();
    let start = |roles: &str| replica(backend).env("TIDEGATE__SERVER__ROLES", roles).start();
    let (mut mortal, others, _worker) = (start("api"), [start("api"), start("api")], start("worker"));
    let addrs = [&mortal, &others[0], &others[1]].map(Tidegate::addr);
    subscribe(addrs[1], &receiver.url("/"), json!({}));
    addrs.iter().for_each(|addr| wait_for_subscriptions(*addr, 1));
    for (round, death) in deaths.iter().enumerate() {
        let id = format!("same-{round}");
        let event = json!({"id": id, "type": "a.b", "data": {"n": 1}, "ordering_key": "k"});
        if let Death::At(point) = death {
            mortal = mortal.kill().env("TIDEGATE_CRASH_AT", point).start();
        }
        let Posted { answers, unanswered, dead } = post_at_once(mortal, addrs, &event, *death);
        say(format_args!("{death:?}: {unanswered} of {POSTS} were not answered by the dead"));
        assert_same(backend, answers);
        mortal = dead.env("TIDEGATE_CRASH_AT", "").start();

        wait_for_status(addrs[1], &id, "delivered");
        let known = Call::post("/v1/events", event.clone()).to(addrs[1]).expect(202);
        for addr in addrs {
            assert_eq!(Call::post("/v1/events", event.clone()).to(addr).expect(202), known);
            for (field, other) in [("data", json!({"n": 2})), ("type", json!("a.c")), ("ordering_key", Value::Null)] {
                let mut event = event.clone();
                event[field] = other;
                let problem = Call::post("/v1/events", event).to(addr).expect_problem(409, "event_conflict");
                assert_eq!(problem["field"], "id");
            }
        }
        let events = Call::get("/v1/events?limit=1000").to(addrs[1]).expect(200);
        let counts = [events["data"].as_array().unwrap().len(), deliveries(addrs[1], "").len(), receiver.count()];
        assert_eq!(counts, [round + 1; 3], "events, deliveries and calls after {death:?}");
    }
    assert_eq!(Call::get("/v1/rejected").to(addrs[1]).expect(200)["data"], json!([]));
}

#[test]
fn a_hundred_parallel_posts_of_one_id_are_one_event_whoever_dies_on_postgres() {
    let backend = Backend::Postgres(need!(testkit::postgres()));
    one_event_whoever_dies(&backend, &["persist.before", "persist.after", "ack.before:17"]);
}

#[cfg(feature = "kafka")]
#[test]
fn a_hundred_parallel_posts_of_one_id_are_one_event_whoever_dies_on_kafka() {
    one_event_whoever_dies(&need!(Backend::kafka()), &["ack.before", "ack.before:17"]);
}
