//! Mistakes: a 4xx with a stable code and the field, and nothing stored.

use std::{net::SocketAddr, thread};

use serde_json::{Value, json};
use testkit::{receiver::Receiver, wait_until};

use super::{deliveries, replica, subscribe, wait_until_all_ended};
use crate::support::{ADMIN_KEY, Backend, Call, Connection, Response, SOON, each_backend, each_queue};

each_queue! {
    a_wrong_event_is_refused_and_nothing_is_stored
    one_broken_line_fails_alone
}

each_backend! {
    a_time_is_read_in_utc_or_refused
    an_id_that_none_can_be_is_refused
    a_wrong_subscription_is_refused_and_nothing_is_stored
    what_is_no_text_is_named_before_the_database_is_asked
    a_cursor_is_of_the_list_that_it_is_passed_to
}

fn post(addr: SocketAddr, body: impl Into<Vec<u8>>) -> Response {
    Call::new("POST", "/v1/events").body("application/json", body).to(addr)
}

fn nested(depth: usize) -> String {
    format!(r#"{{"type": "a.b", "data": {}{}}}"#, "[".repeat(depth), "]".repeat(depth))
}

fn is_empty(addr: SocketAddr, path: &str) -> bool {
    Call::get(path).to(addr).expect(200)["data"] == json!([])
}

fn a_wrong_event_is_refused_and_nothing_is_stored(backend: &Backend) {
    let receiver = Receiver::start();
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({}));
    for (body, code) in [
        ("", "invalid_json"),
        ("{", "invalid_json"),
        (r#"{"type": "a.b", "data": {}} x"#, "invalid_json"),
        (r#"{"type": "a.b", "data": {"a": 01}}"#, "invalid_json"),
        ("[{]", "invalid_json"),
    ] {
        post(addr, body).expect_problem(400, code);
    }
    post(addr, b"{\"type\": \"a.b\", \"data\": \"\xff\"}").expect_problem(400, "invalid_json");
    let long = "x".repeat(300);
    for (event, field) in [
        (json!({"type": 7, "data": {}}), Some("type")),
        (json!({"type": "a.b", "data": {}, "id": 7}), Some("id")),
        (json!({"type": "a.b", "data": {}, "topic": "x"}), Some("topic")),
        (json!({"type": "a.b", "data": {}, "deliver_at": "tomorrow"}), Some("deliver_at")),
        (json!({"type": "a.b", "data": {}, "deliver_at": 1_767_225_600}), Some("deliver_at")),
        (json!({"type": "a.b", "data": {}, "deliver_at": "9999-12-31T23:59:59-00:01"}), Some("deliver_at")),
        (json!({"type": "a.b", "data": {}, "deliver_at": "9999-12-31T23:59:58Z"}), Some("deliver_at")),
        (json!({"type": "", "data": {}}), Some("type")),
        (json!({"type": "a b", "data": {}}), Some("type")),
        (json!({"type": "a.*", "data": {}}), Some("type")),
        (json!({"type": "a\r\nx: y", "data": {}}), Some("type")),
        (json!({"type": "a.b", "data": {}, "id": ""}), Some("id")),
        (json!({"type": "a.b", "data": {}, "id": "a\r\nx: y"}), Some("id")),
        (json!({"type": "a.b", "data": {}, "id": long}), Some("id")),
        (json!({"type": "a.b", "data": {}, "source": "a\u{0}"}), Some("source")),
        (json!({"type": "a.b", "data": {}, "ordering_key": ""}), Some("ordering_key")),
        (json!({"data": {}}), Some("type")),
        (json!({"type": "a.b"}), Some("data")),
        (json!("event"), None),
        (json!(null), None),
    ] {
        let problem = post(addr, event.to_string()).expect_problem(422, "invalid_field");
        assert_eq!(problem["field"].as_str(), field, "{event}: {problem}");
    }
    for (wrong, field, detail) in [
        (r#"{"type": "a.b", "type": "a.c", "data": 1}"#, "type", "type is given more than once: give it once"),
        (r#"{"type": "a.b"}"#, "data", "data is needed"),
        (
            r#"{"type": "a.b", "data": 1, "deliver_at": ""}"#,
            "deliver_at",
            "it must be a time such as 2026-11-15T08:00:00Z",
        ),
    ] {
        let problem = post(addr, wrong).expect_problem(422, "invalid_field");
        assert_eq!((&problem["field"], &problem["detail"]), (&json!(field), &json!(detail)), "{wrong}");
    }
    let large = json!({"type": "a.b", "data": "x".repeat(2 << 20)}).to_string();
    post(addr, large.clone()).expect_problem(413, "event_too_large");
    for depth in [121, 100_000] {
        let problem = post(addr, nested(depth)).expect_problem(422, "invalid_field");
        assert_eq!(problem["field"], "data", "{problem}");
    }
    assert!(is_empty(addr, "/v1/events") && is_empty(addr, "/v1/deliveries"));
    post(addr, nested(120)).expect(202);
    wait_until(SOON, "the good one", || !is_empty(addr, "/v1/events"));
    assert_eq!(Call::get("/v1/events").to(addr).expect(200)["data"].as_array().unwrap().len(), 1);
    assert!(!tidegate.output().contains("panicked"), "{}", tidegate.output());
}

/// A time whose year is 10000 in UTC was a panic in PostgreSQL's client, and a 500.
fn a_time_is_read_in_utc_or_refused(backend: &Backend) {
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    for list in ["deliveries", "events", "attempts"] {
        for field in ["since", "until"] {
            let path = |time: &str| format!("/v1/{list}?{field}={time}");
            let problem = Call::get(&path("9999-12-31T23:59:59-23:00")).to(addr).expect_problem(400, "invalid_query");
            assert_eq!(problem["field"], field, "{problem}");
            for edge in ["9999-12-31T23:59:59Z", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00-05:00"] {
                Call::get(&path(edge)).to(addr).expect(200);
            }
        }
    }
    for field in ["since", "until"] {
        let job = |time: &str| Call::post("/v1/jobs", json!({"kind": "replay", field: time})).to(addr);
        let problem = job("9999-12-31T23:59:59-23:00").expect_problem(422, "invalid_field");
        assert_eq!(problem["field"], field, "{problem}");
        assert_eq!(job("2026-01-01T05:00:00+05:00").expect(202)[field], "2026-01-01T00:00:00Z");
    }
    let event = json!({"type": "a.b", "data": 1, "deliver_at": "2026-01-01T05:00:00+05:00"});
    assert_eq!(post(addr, event.to_string()).expect(202)["deliver_at"], "2026-01-01T00:00:00.000Z");
    assert!(!tidegate.output().contains("panicked"), "{}", tidegate.output());
}

fn an_id_that_none_can_be_is_refused(backend: &Backend) {
    let tidegate = replica(backend).start();
    for kind in ["replay", "cancel"] {
        let job = Call::post("/v1/jobs", json!({"kind": kind, "deliveries": ["\u{0}"]})).to(tidegate.addr());
        assert_eq!(job.expect_problem(422, "invalid_field")["field"], "deliveries[0]");
        let job = Call::post("/v1/jobs", json!({"kind": kind, "subscription": "nobody"})).to(tidegate.addr());
        assert_eq!(job.expect_problem(404, "not_found")["field"], "subscription");
    }
    for (job, field) in [(json!({"kind": 5}), "kind"), (json!({"kind": "replay", "status": [5]}), "status[0]")] {
        let problem = Call::post("/v1/jobs", job).to(tidegate.addr()).expect_problem(422, "invalid_field");
        assert_eq!(problem["field"], field, "{problem}");
    }
}

/// SQLite found nothing by it; PostgreSQL refused it with another code, and did not say where it was.
fn what_is_no_text_is_named_before_the_database_is_asked(backend: &Backend) {
    let tidegate = replica(backend).start();
    let get = |path: &str| Call::get(&format!("/v1/{path}")).to(tidegate.addr());
    for (list, name) in [
        ("events", "after"),
        ("events", "type"),
        ("deliveries", "event"),
        ("deliveries", "subscription"),
        ("attempts", "type"),
        ("rejected", "reason"),
        ("subscriptions", "after"),
    ] {
        for value in ["%00", "a%00b", "%FF"] {
            let problem = get(&format!("{list}?limit=1&{name}={value}")).expect_problem(400, "invalid_query");
            assert_eq!(problem["field"], name, "{list}: {problem}");
        }
    }
    for path in
        ["events/ID", "events/ID/deliveries", "deliveries/ID", "subscriptions/ID/gate", "jobs/ID", "rejected/ID"]
    {
        for id in ["%00", "a%00b", "%FF"] {
            get(&path.replace("ID", id)).expect_problem(400, "invalid_path");
        }
    }
    get("events?type=%C3%A4&after=").expect_problem(400, "invalid_query");
    assert_eq!(get("events?type=%C3%A4").expect(200)["data"], json!([]));
}

/// Whoever passed another was shown an empty page, or the first one again, for ever.
fn a_cursor_is_of_the_list_that_it_is_passed_to(backend: &Backend) {
    let receiver = Receiver::start();
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({}));
    let event = post(addr, r#"{"type": "a.b", "data": 1}"#).expect(202);
    wait_until_all_ended(addr, 1);
    let delivery = &deliveries(addr, "")[0];
    let [event, delivery] = [event, delivery.clone()].map(|made| made["id"].as_str().unwrap().to_owned());
    let attempt =
        Call::get(&format!("/v1/deliveries/{delivery}/attempts")).to(addr).expect(200)["data"][0]["id"].clone();
    let lists = [
        ("events".to_owned(), event.as_str()),
        ("deliveries".to_owned(), &delivery),
        ("attempts".to_owned(), &delivery),
        (format!("events/{event}/deliveries"), &delivery),
        (format!("deliveries/{delivery}/attempts"), attempt.as_str().unwrap()),
        ("jobs".to_owned(), "job_01k9x7m2e8f3s9w4d6b1c5a7g0"),
        ("rejected".to_owned(), "rej_01k9x7m2e8f3s9w4d6b1c5a7g0"),
        ("subscriptions".to_owned(), "chosen-by-the-caller"),
    ];
    for (list, own) in &lists {
        let get = |after: &str| Call::get(&format!("/v1/{list}?after={after}")).to(addr);
        assert_eq!(get(own).expect(200)["data"], json!([]), "{list}");
        let others = lists.iter().map(|(_, other)| *other).filter(|other| other != own && list != "subscriptions");
        for other in others.chain(["", "Garbage", "a%20b"]) {
            let problem = get(other).expect_problem(400, "invalid_query");
            assert_eq!(problem["field"], "after", "{list}: {problem}");
            assert!(problem["detail"].as_str().unwrap().contains("`next` of the page before"), "{problem}");
        }
    }
}

#[test]
fn a_body_where_none_is_taken_is_refused() {
    let receiver = Receiver::start();
    let tidegate = replica(&Backend::Sqlite).start();
    let addr = tidegate.addr();
    let made = subscribe(addr, &receiver.url("/"), json!({}));
    let id = made["id"].as_str().unwrap();
    let routes = ["test", "pause", "resume"].map(|what| format!("/v1/subscriptions/{id}/{what}"));
    let others = ["/v1/deliveries/dlv_1/retry", "/v1/deliveries/dlv_1/cancel", "/v1/jobs/job_1/cancel"];
    for route in routes.iter().map(String::as_str).chain(others) {
        for body in ["x", r#"{"type": "x"}"#, "[]"] {
            let call = Call::new("POST", route).body("application/json", body);
            call.to(addr).expect_problem(400, "unexpected_body");
        }
    }
    for route in &routes {
        for body in ["", "{}", " {}\n"] {
            let answer = Call::new("POST", route).body("application/json", body).to(addr);
            assert!([200, 202].contains(&answer.status), "{route}: {answer:?}");
        }
    }
}

#[test]
fn what_is_neither_json_nor_lines_is_refused() {
    let tidegate = replica(&Backend::Sqlite).start();
    let addr = tidegate.addr();
    let good = r#"{"type": "a.b", "data": 1}"#;
    let many = format!("[{good}]");
    let send = |content_type: &str, body: &str| Call::new("POST", "/v1/events").body(content_type, body).to(addr);
    for body in [good, &many] {
        for content_type in ["image/png", "application/xml", "multipart/form-data; boundary=x", "text/plain"] {
            send(content_type, body).expect_problem(415, "unsupported_media_type");
        }
        for content_type in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/cloudevents+json",
            "application/x-www-form-urlencoded",
        ] {
            send(content_type, body).expect(202);
        }
    }
    for content_type in ["application/x-ndjson", "application/ndjson; charset=utf-8", "application/jsonl"] {
        assert_eq!(send(content_type, good).expect(202)["accepted"], 1);
    }
    for content_type in ["application/json", "application/x-ndjson"] {
        let call = Call::new("POST", "/v1/events").header("content-encoding", "gzip").body(content_type, good);
        let problem = call.to(addr).expect_problem(415, "unsupported_media_type");
        assert!(problem["detail"].as_str().unwrap().contains("compressed"), "{problem}");
    }
}

/// An array was held against the bound of a tenant's memory (96 MiB) as a body, and once more as its events: others were told to
/// come back while there was room.
#[test]
fn an_array_is_given_memory_once() {
    let tidegate = replica(&Backend::Sqlite).env("TIDEGATE__DISPATCH__MAX_EVENT", "8MiB").start();
    let addr = tidegate.addr();
    let rest = vec![b' '; 7 << 20 | 600 << 10];
    let stalled: Vec<Connection> = thread::scope(|scope| {
        let stall = || {
            let mut connection = Connection::in_flight(addr, "/v1/events", 8 << 20);
            connection.send(&rest).unwrap();
            connection
        };
        let stalling: Vec<_> = (0..11).map(|_| scope.spawn(stall)).collect();
        stalling.into_iter().map(|stalling| stalling.join().unwrap()).collect()
    });
    let event = json!({"type": "a.b", "data": "x".repeat(8_000_000)});
    let answer = post(addr, json!([event]).to_string()).expect(202);
    assert_eq!(answer["accepted"], 1, "{answer}");
    drop(stalled);
}

/// Each piece of a body was rounded up to a KiB of intake's 128 MiB: less than a megabyte in pieces of a byte took all of it, and
/// every tenant's events were refused until that request's time was over.
#[test]
fn a_body_in_tiny_pieces_is_given_no_more_memory_than_it_has() {
    let tidegate = replica(&Backend::Sqlite).start();
    let addr = tidegate.addr();
    let mut stalled: Vec<Connection> = Vec::new();
    for content_type in ["application/json", "application/x-ndjson"] {
        let mut connection = Connection::open(addr).unwrap();
        let head = format!(
            "POST /v1/events HTTP/1.1\r\nhost: {addr}\r\nauthorization: Bearer {ADMIN_KEY}\r\ncontent-type: {content_type}\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        connection.send(head.as_bytes()).unwrap();
        connection.send("1\r\n \r\n".repeat(140_000).as_bytes()).unwrap();
        stalled.push(connection);
    }
    // The pieces are read while others are served.
    for _ in 0..20 {
        post(addr, json!({"type": "a.b", "data": "x".repeat(100_000)}).to_string()).expect(202);
    }
    for mut connection in stalled {
        connection.send(b"13\r\n{\"type\":\"a\",\"data\":\r\n2\r\n1}\r\n0\r\n\r\n").unwrap();
        assert_eq!(connection.receive().unwrap().status, 202);
    }
}

fn a_wrong_subscription_is_refused_and_nothing_is_stored(backend: &Backend) {
    // The door is locked, so private addresses are not called.
    let tidegate = backend.locked().start();
    let addr = tidegate.addr();
    let create = |more: Value| {
        let mut settings = json!({"url": "https://example.com/hook", "event_types": ["order.*"]});
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Call::post("/v1/subscriptions", settings).admin().to(addr)
    };
    for url in [
        "ftp://example.com/",
        "example.com",
        "",
        "http://user:hunter2@example.com/",
        "http://127.0.0.1:9/",
        "http://[::1]/",
        "http://169.254.169.254/latest/meta-data",
        "http://10.0.0.1/",
        "http://0x7f.1/",
        "https://exa mple.com/",
        "https://example.com/\r\nx: y",
    ] {
        let answer = create(json!({"url": url}));
        assert_eq!(answer.status, 422, "{url:?}: {answer:?}");
        let problem = answer.json();
        assert_eq!(problem["field"], "url", "{problem}");
        assert!(!problem["detail"].as_str().unwrap().contains("hunter2"), "{problem}");
    }
    for (wrong, field) in [
        (json!({"event_types": []}), "event_types"),
        (json!({"event_types": ["a..b"]}), "event_types[0]"),
        (json!({"event_types": ["a.b", "a.**c"]}), "event_types[1]"),
        (json!({"event_types": "a"}), "event_types"),
        (json!({"rate_limit": 0}), "rate_limit"),
        (json!({"rate_limit": -1}), "rate_limit"),
        (json!({"rate_limit": 1_000_000}), "rate_limit"),
        (json!({"max_concurrency": 0}), "max_concurrency"),
        (json!({"timeout": "99ms"}), "timeout"),
        (json!({"timeout": "31s"}), "timeout"),
        (json!({"timeout": 15}), "timeout"),
        (json!({"timeout": "18446744073709551615s 1000ms"}), "timeout"),
        (json!({"description": "x".repeat(1001)}), "description"),
        (json!({"retry_schedule": ["soon"]}), "retry_schedule[0]"),
        (json!({"retry_schedule": ["5s", "0s"]}), "retry_schedule[1]"),
        (json!({"retry_schedule": vec!["5s"; 21]}), "retry_schedule"),
        (json!({"ordering": "random"}), "ordering"),
        (json!({"ordering": 5}), "ordering"),
        (json!({"ordering": true}), "ordering"),
        (json!({"ordering": {}}), "ordering"),
        (json!({"signatures": 5}), "signatures"),
        (json!({"headers": {"host": "x"}}), "headers.host"),
        (json!({"headers": {"X-A": "a", "x-a": "b"}}), "headers.x-a"),
        (json!({"headers": {"webhook-id": "x"}}), "headers.webhook-id"),
        (json!({"headers": {"x-a": "a\r\nx-b: c"}}), "headers.x-a"),
        (json!({"filter": {"data.a": {"near": 1}}}), r#"filter["data.a"].near"#),
        (json!({"id": "Not Plain"}), "id"),
        (json!({"secret": "whsec_!"}), "secret"),
        (json!({"tls": []}), "tls"),
        (json!({"urll": "x"}), "urll"),
    ] {
        let answer = create(wrong.clone());
        assert_eq!(answer.status, 422, "{wrong}: {answer:?}");
        let problem = answer.expect_problem(422, "invalid_field");
        assert_eq!(problem["field"], field, "{wrong}: {problem}");
    }
    // The usual parser keeps the last of two names, and a condition would be lost without a word.
    let twice =
        r#"{"url":"https://example.com/","event_types":["**"],"filter":{"data.a":{"gte":1},"data.a":{"lt":5}}}"#;
    let answer = Call::new("POST", "/v1/subscriptions").admin().body("application/json", twice).to(addr);
    assert_eq!(answer.expect_problem(422, "invalid_field")["field"], "filter");
    assert_eq!(Call::get("/v1/subscriptions").admin().to(addr).expect(200)["data"], json!([]));
    let made = create(json!({"id": "mine"})).expect(201);
    assert_eq!(made["id"], "mine");
    create(json!({"id": "mine"})).expect_problem(409, "subscription_exists");
    let change = |body: Value| Call::new("PATCH", "/v1/subscriptions/mine").admin().json(body).to(addr);
    assert_eq!(change(json!({"secret": "x"})).expect_problem(422, "invalid_field")["field"], "secret");
    assert_eq!(change(json!({"url": "http://127.0.0.1/"})).json()["field"], "url");
    let kept = Call::get("/v1/subscriptions/mine").admin().to(addr).expect(200);
    assert_eq!(kept["url"], "https://example.com/hook");
    for (path, status, code) in [
        ("/v1/deliveries?limit=0", 400, "invalid_query"),
        ("/v1/deliveries?limit=1001", 400, "invalid_query"),
        ("/v1/deliveries?limit=-1", 400, "invalid_query"),
        ("/v1/deliveries?limit=many", 400, "invalid_query"),
        ("/v1/deliveries?status=lost", 400, "invalid_query"),
        ("/v1/deliveries?since=yesterday", 400, "invalid_query"),
        ("/v1/deliveries?sort=up", 400, "invalid_query"),
        ("/v1/subscriptions?limit=0", 400, "invalid_query"),
        ("/v1/events?limit=x", 400, "invalid_query"),
    ] {
        let problem = Call::get(path).admin().to(addr).expect_problem(status, code);
        let named = path.split(['?', '=']).nth(1).unwrap();
        assert_eq!(problem["field"], named, "{problem}");
        assert!(!problem["detail"].as_str().unwrap().contains("deserialize"), "{problem}");
    }
}

fn one_broken_line_fails_alone(backend: &Backend) {
    let receiver = Receiver::start();
    let tidegate = replica(backend).start();
    let addr = tidegate.addr();
    subscribe(addr, &receiver.url("/"), json!({}));
    let many = |body: String| Call::new("POST", "/v1/events").body("application/x-ndjson", body).to(addr);
    let good = |id: &str| json!({"id": id, "type": "a.b", "data": {}}).to_string();
    let huge = json!({"id": "huge", "type": "a.b", "data": "x".repeat(3 << 20)}).to_string();
    let answer =
        many([&good("a"), "{nope", "", &good("b"), r#"{"type": "a.b"}"#, &huge, &good("c")].join("\n")).expect(202);
    assert_eq!((&answer["accepted"], &answer["rejected"]), (&json!(3), &json!(3)), "{answer}");
    let result = |place: usize| answer["results"][place].clone();
    assert_eq!((&result(0)["id"], &result(2)["id"], &result(5)["id"]), (&json!("a"), &json!("b"), &json!("c")));
    assert_eq!(result(1)["error"]["code"], "invalid_json");
    assert_eq!(result(3)["error"]["code"], "invalid_field");
    assert_eq!(result(4)["error"]["code"], "event_too_large");
    wait_until_all_ended(addr, 3);
    assert_eq!((deliveries(addr, "").len(), receiver.distinct()), (3, 3));

    let nothing = many(String::new()).expect(202);
    assert_eq!(nothing, json!({"accepted": 0, "rejected": 0, "results": []}));
    let all_wrong = many("nope\nnope".to_owned());
    assert_eq!(all_wrong.expect(422)["rejected"], 2);
    let too_many = "{}\n".repeat(10_001);
    let answer = many(too_many).expect(422);
    assert_eq!(answer["results"][10_000]["error"]["code"], "too_many_events");
    assert_eq!(deliveries(addr, "").len(), 3);
}
