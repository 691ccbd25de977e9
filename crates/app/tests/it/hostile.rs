//! Hostile input: always a problem with a stable code, never a crash, and never at another caller's expense.

use std::io;

use serde_json::json;
use testkit::{need, wait_until};

use crate::support::{Call, Connection, SOON, Setup};

#[test]
fn every_mistake_is_a_problem_with_a_stable_code() {
    let tidegate = Setup::serve().start();
    let post = |body: &str| Call::new("POST", "/admin/tenants").body("application/json", body).to(tidegate.addr());

    let problem = post(r#"{"name": "a", }"#).expect_problem(400, "invalid_json");
    assert!(problem["detail"].as_str().unwrap().contains("line 1 column 15"), "{problem}");
    let problem = post("{\n  \"name\": nope}").expect_problem(400, "invalid_json");
    assert!(problem["detail"].as_str().unwrap().contains("line 2"), "{problem}");
    let problem = post(r#"{"name": "a", "nmae": "b"}"#).expect_problem(422, "invalid_field");
    assert_eq!(problem["field"], "nmae");
    let problem = post(r#"{"name": 7}"#).expect_problem(422, "invalid_field");
    assert_eq!(problem["field"], "name");
    for name in ["", " ", "a\\u0000b", &"x".repeat(201)] {
        let problem = post(&format!(r#"{{"name": "{name}"}}"#)).expect_problem(422, "invalid_field");
        assert_eq!(problem["field"], "name");
    }
    for id in ["", "A", "a b", "../etc", "a/b", "ä", "a{b}", &"x".repeat(65)] {
        let problem = post(&json!({"id": id, "name": "a"}).to_string()).expect_problem(422, "invalid_field");
        assert_eq!(problem["field"], "id");
    }
    post("").expect_problem(400, "invalid_json");
    post("[]").expect_problem(422, "invalid_field");
    post(r#"{"name": "a"} {}"#).expect_problem(400, "invalid_json");
    let typed = Call::new("POST", "/admin/tenants").body("text/xml", "<name/>").to(tidegate.addr());
    typed.expect_problem(415, "unsupported_media_type");
    let query = tidegate.get("/admin/tenants?limit=many");
    query.expect_problem(400, "invalid_query");
    tidegate.get("/admin/tenants?limit=0").expect_problem(400, "invalid_query");
    tidegate.get("/admin/tenants?limti=1").expect_problem(400, "invalid_query");
    Call::new("PUT", "/admin/tenants").to(tidegate.addr()).expect_problem(405, "method_not_allowed");
    tidegate.get("/nowhere").expect_problem(404, "unknown_route");
    tidegate.get("/admin/tenants/%ff").expect_problem(400, "invalid_path");
    assert!(!tidegate.output().contains("panicked"), "{}", tidegate.output());
}

#[test]
fn a_nul_is_the_callers_mistake_whatever_the_database() {
    let postgres = need!(testkit::postgres());
    for setup in [Setup::serve(), Setup::serve().env("DATABASE_URL", &postgres.url())] {
        let tidegate = setup.start();
        for (path, code, field) in [
            ("/admin/tenants/%00", "invalid_path", "tenant"),
            ("/admin/tenants/%00/keys", "invalid_path", "tenant"),
            ("/v1/gates/%00", "invalid_path", "target"),
            ("/admin/tenants?after=%00", "invalid_query", "after"),
            ("/admin/audit?after=a%00", "invalid_query", "after"),
        ] {
            assert_eq!(tidegate.get(path).expect_problem(400, code)["field"], field, "{path}");
        }
    }
}

#[test]
fn a_body_over_the_limit_is_refused_with_413() {
    let tidegate = Setup::serve().start();
    let body = json!({"name": "x".repeat(2 << 20)}).to_string();
    let call = Call::new("POST", "/admin/tenants").body("application/json", body);
    call.to(tidegate.addr()).expect_problem(413, "body_too_large");
    let body = json!({"name": "x".repeat(2 << 10)}).to_string();
    let tidegate = Setup::serve().env("TIDEGATE__SERVER__MAX_BODY", "1KiB").start();
    let call = Call::new("POST", "/admin/tenants/default/keys/key_1/rotate").body("application/json", body);
    call.to(tidegate.addr()).expect_problem(413, "body_too_large");
}

#[test]
fn json_nested_a_hundred_thousand_deep_is_refused() {
    let tidegate = Setup::serve().start();
    for (open, close) in [("[", "]"), (r#"{"name":"#, "}")] {
        let body = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        let response = Call::new("POST", "/admin/tenants").body("application/json", body).to(tidegate.addr());
        assert!((400..500).contains(&response.status), "{response:?}");
    }
    tidegate.get("/health/ready").expect(200);
}

#[test]
fn nonsense_instead_of_http_closes_that_connection_only() {
    let tidegate = Setup::serve().start();
    let long_head = format!("GET / HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(200_000));
    let many_heads = format!("GET / HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "a: b\r\n".repeat(1000));
    for nonsense in [
        b"\x16\x03\x01\x02\x00\x01\x00".as_slice(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /admin/tenants HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"POST /admin/tenants HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        long_head.as_bytes(),
        many_heads.as_bytes(),
    ] {
        let mut connection = Connection::open(tidegate.addr()).unwrap();
        // It may hang up before it has heard all of it.
        drop::<io::Result<()>>(connection.send(nonsense));
        if let Ok(response) = connection.receive() {
            assert!((400..500).contains(&response.status), "{response:?}");
        }
    }
    tidegate.get("/health/ready").expect(200);
    assert!(!tidegate.output().contains("panicked"), "{}", tidegate.output());
}

#[test]
fn slow_and_silent_connections_are_closed_while_others_are_served() {
    let tidegate = Setup::serve().env("TIDEGATE__SERVER__HEADER_TIMEOUT", "3s").start();
    let open = || Connection::open(tidegate.addr()).unwrap();
    let mut silent: Vec<Connection> = (0..200).map(|_| open()).collect();
    let mut dripping: Vec<Connection> = (0..200).map(|_| open()).collect();
    for (number, connection) in dripping.iter_mut().enumerate() {
        // Half of them were good citizens once.
        let before: &[u8] = if number % 2 == 0 { b"" } else { b"GET /v1/me HTTP/1.1\r\nhost: localhost\r\n\r\n" };
        connection.send(&[before, b"GET /v1/me HTTP/1.1\r\nhost: localhost\r\nx-slow: "].concat()).unwrap();
    }
    let mut served = 0;
    wait_until(SOON, "every slow connection to be closed", || {
        tidegate.get("/v1/me").expect(200);
        silent.retain_mut(|connection| !connection.is_closed());
        // A byte in every round: sending something now and then must not buy more time.
        dripping.retain_mut(|connection| connection.send(b"y").is_ok() && !connection.is_closed());
        served += usize::from(silent.len() + dripping.len() == 400);
        silent.is_empty() && dripping.is_empty()
    });
    assert!(served >= 3, "{served} healthy clients were served while all the slow ones were there");
}

#[test]
fn a_body_that_never_ends_is_cut_off_by_the_request_timeout() {
    let tidegate = Setup::serve().env("TIDEGATE__SERVER__REQUEST_TIMEOUT", "500ms").start();
    let mut connection = Connection::in_flight(tidegate.addr(), "/admin/tenants", 100);
    let problem = connection.receive().unwrap().expect_problem(408, "request_timeout");
    assert!(problem["detail"].as_str().unwrap().contains("may be done all the same"), "{problem}");
}

#[test]
fn connections_over_the_limit_are_closed_at_once() {
    let tidegate = Setup::serve().env("TIDEGATE__SERVER__MAX_CONNECTIONS", "4").start();
    let open = || tidegate.metric(r#"tidegate_http_connections{listener="api"}"#);
    wait_until(SOON, "the question whether it is ready to be over", || open() == Some(0.0));
    let mut held: Vec<Connection> =
        (0..4).map(|_| Connection::in_flight(tidegate.addr(), "/admin/tenants", 15)).collect();
    assert!(Call::get("/health/live").try_to(tidegate.addr()).is_err());
    let metrics = Call::get("/metrics").to(tidegate.ops_addr()).body;
    assert!(metrics.contains("tidegate_http_connections_refused_total{listener=\"api\"}"), "{metrics}");
    held.pop().unwrap().send(br#"{"name": "four"}"#.get(..15).unwrap()).unwrap();
    drop(held);
    wait_until(SOON, "a place to be free", || Call::get("/health/live").try_to(tidegate.addr()).is_ok());
}
