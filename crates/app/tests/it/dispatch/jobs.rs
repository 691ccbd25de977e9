//! Jobs: replay, cancel and purge in the background, killed, taken over and called off on the way.

use std::net::SocketAddr;

use serde_json::{Value, json};
use testkit::{
    need,
    receiver::{Answer, Behaviour, Receiver},
    wait::try_wait_until,
    wait_until,
};

use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{
    LATER, attempts, deliveries, event_id, replica, send, send_all, statuses, subscribe, tomorrow, wait_for_status,
    wait_until_ended,
};
use crate::support::{Backend, Call, each_backend};

each_backend! {
    a_replay_sends_what_has_failed_again_with_a_fresh_schedule
    what_a_subscription_never_got_is_made_up_for
    what_has_ended_is_purged_once_it_was_counted
    a_list_goes_on_behind_an_event_that_was_purged
    a_cancelled_job_stops_where_it_is
}

#[track_caller]
pub(super) fn start(addr: SocketAddr, job: Value) -> Value {
    Call::post("/v1/jobs", job).to(addr).expect(202)
}

fn get(addr: SocketAddr, job: &Value) -> Value {
    Call::get(&format!("/v1/jobs/{}", job["id"].as_str().unwrap())).to(addr).expect(200)
}

/// Waits until a job is as it should be, and gives it.
#[track_caller]
fn wait_for(addr: SocketAddr, job: &Value, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    let found = try_wait_until(LATER, format!("the job to be {what}"), || {
        last = get(addr, job);
        is_so(&last).then(|| last.clone())
    });
    found.unwrap_or_else(|timed_out| panic!("{timed_out}: {last}"))
}

#[track_caller]
pub(super) fn wait_until_done(addr: SocketAddr, job: &Value) -> Value {
    wait_for(addr, job, "done", |job| job["state"] == "done")
}

/// A lot of deliveries that were called off before they were due.
fn cancelled(addr: SocketAddr, count: usize) {
    let later = tomorrow();
    for start in (0..count).step_by(5000) {
        let numbers = start..count.min(start + 5000);
        send_all(
            addr,
            numbers.map(|n| json!({"id": event_id(n), "type": "order.created", "data": n, "deliver_at": later})),
        );
    }
    let job = start(addr, json!({"kind": "cancel"}));
    assert_eq!(wait_until_done(addr, &job)["cancelled"], count);
}

fn a_replay_sends_what_has_failed_again_with_a_fresh_schedule(backend: &Backend) {
    let receiver = Receiver::start();
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    let subscription = subscribe(addr, &receiver.url("/"), json!({"retry_schedule": ["10ms"]}));
    send(addr, json!({"id": "well", "type": "order.created", "data": {}}));
    wait_for_status(addr, "well", "delivered");
    // Of each id: two for the first schedule, and one more.
    receiver.set(Behaviour { fail_first_of_each: 3, ..Behaviour::default() });
    send(addr, json!({"id": "twice", "type": "order.created", "data": {}}));
    let failed = wait_for_status(addr, "twice", "failed");
    assert_eq!(failed["attempts"], 2);

    let dry = wait_until_done(addr, &start(addr, json!({"kind": "replay", "dry_run": true})));
    assert_eq!((&dry["requeued"], &dry["dry_run"], &dry["progress"]), (&json!(1), &json!(true), &json!(1.0)), "{dry}");
    assert_eq!(receiver.count(), 3, "nothing was sent");
    let other = start(addr, json!({"kind": "replay", "event_types": ["invoice.*"]}));
    assert_eq!(wait_until_done(addr, &other)["requeued"], 0);

    // It fails once more; the schedule has begun anew, so another attempt follows.
    let path = format!("/v1/subscriptions/{}/replay", subscription["id"].as_str().unwrap());
    let job = Call::new("POST", &path).to(addr).expect(202);
    assert_eq!((&job["kind"], &job["status"]), (&json!("replay"), &json!(["failed"])));
    let done = wait_until_done(addr, &job);
    assert_eq!((&done["requeued"], &done["skipped"]), (&json!(1), &json!(0)), "{done}");
    let delivered = wait_for_status(addr, "twice", "delivered");
    assert_eq!((&delivered["attempts"], attempts(addr, &delivered).len()), (&json!(4), 4));

    // What was delivered is sent again under the same id, where it is asked for.
    let before = receiver.count();
    let id = delivered["id"].as_str().unwrap();
    let job = start(addr, json!({"kind": "replay", "deliveries": [id]}));
    assert_eq!(wait_until_done(addr, &job)["requeued"], 1);
    receiver.received_blocking(before + 1, LATER);
    assert_eq!(receiver.requests().last().unwrap().id(), "twice");
    wait_until_ended(addr);
    let listed = Call::get("/v1/jobs?kind=replay&limit=2").to(addr).expect(200);
    assert_eq!((listed["data"].as_array().unwrap().len(), &listed["data"][0]["id"]), (2, &job["id"]));
    Call::new("POST", &format!("/v1/jobs/{}/cancel", job["id"].as_str().unwrap()))
        .to(addr)
        .expect_problem(409, "already_ended");
}

fn what_a_subscription_never_got_is_made_up_for(backend: &Backend) {
    let receiver = Receiver::start();
    receiver.set(Answer::Status(410));
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    let only = json!({"event_types": ["order.*"], "filter": {"data.n": {"gte": 10}}, "retry_schedule": []});
    let subscription = subscribe(addr, &receiver.url("/"), only);
    send(addr, json!({"id": "last", "type": "order.created", "data": {"n": 10}}));
    wait_for_status(addr, "last", "failed");
    let path = format!("/v1/subscriptions/{}", subscription["id"].as_str().unwrap());
    wait_until(LATER, "it to be disabled", || Call::get(&path).to(addr).expect(200)["enabled"] == false);
    for n in 9..20 {
        send(addr, json!({"id": format!("n{n}"), "type": "order.created", "data": {"n": n}}));
    }
    send(addr, json!({"id": "else", "type": "invoice.paid", "data": {"n": 10}}));
    receiver.set(Behaviour::default());
    Call::new("PATCH", &path).json(json!({"enabled": true})).to(addr).expect(200);

    let since = subscription["created_at"].clone();
    let dry = json!({"missing": true, "since": since, "dry_run": true});
    let replay = format!("{path}/replay");
    let counted = wait_until_done(addr, &Call::post(&replay, dry).to(addr).expect(202));
    assert_eq!((&counted["created"], &counted["requeued"]), (&json!(10), &json!(1)), "{counted}");
    let job = json!({"missing": true, "since": since});
    let done = wait_until_done(addr, &Call::post(&replay, job.clone()).to(addr).expect(202));
    assert_eq!((&done["created"], &done["requeued"]), (&json!(10), &json!(1)), "{done}");
    receiver.received_blocking(12, LATER);
    wait_until_ended(addr);
    assert_eq!(statuses(addr), [("delivered".to_owned(), 11)].into());
    let again = wait_until_done(addr, &Call::post(&replay, job).to(addr).expect(202));
    assert_eq!((&again["created"], &again["requeued"]), (&json!(0), &json!(0)), "{again}");
    Call::post(&replay, json!({"missing": true})).to(addr).expect_problem(422, "invalid_field");
}

fn a_list_goes_on_behind_an_event_that_was_purged(backend: &Backend) {
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    for id in ["a", "b", "c", "d", "e"] {
        send(addr, json!({"id": id, "type": format!("type.{id}"), "data": {}}));
    }
    let page = |query: &str| Call::get(&format!("/v1/events?limit=2{query}")).to(addr).expect(200);
    let ids = |page: &Value| -> Vec<String> {
        page["data"].as_array().unwrap().iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect()
    };
    let first = page("");
    assert_eq!(ids(&first), ["e", "d"]);
    let purge = json!({"kind": "purge", "event_types": ["type.d"], "dry_run": false});
    assert_eq!(wait_until_done(addr, &start(addr, purge))["events_deleted"], 1);
    let second = page(&format!("&after={}", first["next"].as_str().unwrap()));
    assert_eq!(ids(&second), ["c", "b"]);
    assert_eq!(ids(&page("&after=c")), ["b", "a"], "an event is a place, too");
}

fn what_has_ended_is_purged_once_it_was_counted(backend: &Backend) {
    let receiver = Receiver::start();
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({"event_types": ["order.*"]}));
    for n in 0..3 {
        send(addr, json!({"id": format!("done{n}"), "type": "order.created", "data": {}}));
        wait_for_status(addr, &format!("done{n}"), "delivered");
    }
    send(addr, json!({"id": "nobodys", "type": "other", "data": {}}));
    send(addr, json!({"id": "later", "type": "order.created", "data": {}, "deliver_at": tomorrow()}));
    let problem = Call::post("/v1/jobs", json!({"kind": "purge"})).to(addr).expect_problem(422, "invalid_field");
    assert_eq!(problem["field"], "dry_run");
    let waiting = json!({"kind": "purge", "status": ["pending"], "dry_run": false});
    let problem = Call::post("/v1/jobs", waiting).to(addr).expect_problem(422, "invalid_field");
    assert!(problem["detail"].as_str().unwrap().contains("\"cancel\""), "it says what to do first: {problem}");

    let counted = wait_until_done(addr, &start(addr, json!({"kind": "purge", "dry_run": true})));
    assert_eq!((&counted["deleted"], deliveries(addr, "").len()), (&json!(3), 4), "{counted}");
    let done = wait_until_done(addr, &start(addr, json!({"kind": "purge", "dry_run": false})));
    assert_eq!((&done["deleted"], &done["events_deleted"]), (&json!(3), &json!(4)), "{done}");
    assert_eq!(statuses(addr), [("pending".to_owned(), 1)].into(), "what is still due stays");
    Call::get("/v1/events/done0").to(addr).expect_problem(404, "not_found");
    Call::get("/v1/events/nobodys").to(addr).expect_problem(404, "not_found");

    // Cancelled first, it may go too.
    assert_eq!(wait_until_done(addr, &start(addr, json!({"kind": "cancel"})))["cancelled"], 1);
    let rest = json!({"kind": "purge", "status": ["cancelled"], "dry_run": false});
    assert_eq!(wait_until_done(addr, &start(addr, rest))["events_deleted"], 1);
    assert_eq!(Call::get("/v1/events").to(addr).expect(200)["data"], json!([]));
}

fn a_cancelled_job_stops_where_it_is(backend: &Backend) {
    const EVENTS: usize = 20_000;
    let receiver = Receiver::start();
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({"rate_limit": 1}));
    cancelled(addr, EVENTS);
    let job = start(addr, json!({"kind": "replay", "status": ["cancelled"]}));
    wait_for(addr, &job, "under way", |job| job["requeued"].as_u64() > Some(0));
    let waits = start(addr, json!({"kind": "replay", "status": ["cancelled"]}));
    assert_eq!(get(addr, &waits)["state"], "pending", "one at a time");
    for job in [&waits, &job] {
        let path = format!("/v1/jobs/{}/cancel", job["id"].as_str().unwrap());
        assert_eq!(Call::new("POST", &path).to(addr).expect(200)["state"], "cancelled");
    }
    let stopped = get(addr, &job);
    let requeued = stopped["requeued"].as_u64().unwrap();
    assert!(requeued > 0 && requeued < EVENTS as u64, "{stopped}");
    assert!(stopped["finished_at"].is_string() && stopped["progress"].as_f64() < Some(1.0), "{stopped}");
    // At half of one a second they are due two seconds apart, however many there are.
    let due = |one: &Value| OffsetDateTime::parse(one["next_attempt_at"].as_str().unwrap(), &Rfc3339).unwrap();
    let waiting = deliveries(addr, "&status=pending");
    let mut due: Vec<OffsetDateTime> = waiting.iter().map(due).collect();
    due.sort_unstable();
    assert!(due.windows(2).all(|pair| pair[1] - pair[0] >= time::Duration::milliseconds(1900)), "{:?}", &due[..10]);
    // Whatever it did, it said: the rest is as it was.
    let left = deliveries(addr, "&status=cancelled").len() as u64;
    assert_eq!(left, EVENTS as u64 - requeued, "{stopped}");
}

/// `kill -9` in the middle: the next process goes on where the last commit was. What is counted twice would be more than
/// there is; what is lost would stay cancelled. Returns how many were done when it was killed.
fn killed_in_the_middle(backend: &Backend, has_heir: bool) -> Value {
    const EVENTS: usize = 20_000;
    let receiver = Receiver::start();
    let tidegate = replica(backend).start();
    let heir = has_heir.then(|| replica(backend).start());
    let addr = tidegate.addr();
    // So slow that hardly any of them is sent meanwhile.
    subscribe(addr, &receiver.url("/"), json!({"rate_limit": 1}));
    cancelled(addr, EVENTS);
    let job = start(addr, json!({"kind": "replay", "status": ["cancelled"]}));
    let running = wait_for(addr, &job, "under way", |job| job["requeued"].as_u64() > Some(1000));
    assert_eq!(running["state"], "running", "it was over too soon to show anything: {running}");
    let setup = tidegate.kill();
    let heir = heir.unwrap_or_else(|| setup.start());
    let done = wait_until_done(heir.addr(), &job);
    assert_eq!((&done["requeued"], &done["skipped"]), (&json!(EVENTS), &json!(0)), "{done}");
    assert_eq!(deliveries(heir.addr(), "&status=cancelled").len(), 0);
    heir.stop().succeeded();
    running["requeued"].clone()
}

#[test]
fn a_killed_job_goes_on_where_it_was_on_sqlite() {
    println!("killed after {}", killed_in_the_middle(&Backend::Sqlite, false));
}

#[test]
fn a_killed_job_is_taken_over_by_another_worker_on_postgres() {
    let postgres = need!(testkit::postgres());
    println!("killed after {}", killed_in_the_middle(&Backend::Postgres(postgres), true));
}

#[test]
fn a_job_that_makes_no_sense_is_refused() {
    let tidegate = replica(&Backend::Sqlite).start();
    let addr = tidegate.addr();
    for (job, field) in [
        (json!({}), "kind"),
        (json!({"kind": "replay", "status": ["processing"]}), "status"),
        (json!({"kind": "replay", "event_types": ["a b"]}), "event_types[0]"),
        (json!({"kind": "replay", "since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}), "until"),
        (json!({"kind": "replay", "deliveries": []}), "deliveries"),
        (json!({"kind": "cancel", "missing": true}), "missing"),
    ] {
        let problem = Call::post("/v1/jobs", job).to(addr).expect_problem(422, "invalid_field");
        assert_eq!(problem["field"], field, "{problem}");
    }
    Call::post("/v1/jobs", json!({"kind": "replay", "subscription": "sub_x"}))
        .to(addr)
        .expect_problem(404, "not_found");
    Call::new("POST", "/v1/subscriptions/sub_x/replay").to(addr).expect_problem(404, "not_found");
    Call::get("/v1/jobs/job_x").to(addr).expect_problem(404, "not_found");
    Call::new("POST", "/v1/jobs/job_x/cancel").to(addr).expect_problem(404, "not_found");
    assert_eq!(Call::get("/v1/jobs").to(addr).expect(200)["data"], json!([]), "nothing was stored");
}
