//! `tidegate sink`: a real delivery is shown, verified, counted; and failed on request.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::wait_until;

use crate::support::{Call, SOON, Setup, Tidegate};

/// A sink that listens; `addr` is its address.
pub(crate) fn sink(args: &[&str]) -> Tidegate {
    let setup = args.iter().fold(Setup::command(&["sink"]), |setup, arg| setup.arg(arg));
    let addr = setup.addr().to_string();
    let sink = setup.arg("--addr").arg(&addr).spawn();
    wait_until(SOON, "the sink to listen", || Call::get("/").try_to(sink.addr()).is_ok());
    sink
}

/// What it has counted so far.
pub(crate) fn counts(sink: &Tidegate) -> Value {
    sink.get("/").expect(200)
}

/// Waits until it has counted so many calls, and returns all counts.
fn received(sink: &Tidegate, many: u64) -> Value {
    wait_until(SOON, format!("{many} calls"), || counts(sink)["received"].as_u64() >= Some(many));
    counts(sink)
}

/// Ctrl-C, and the summary it prints.
fn summary(sink: Tidegate) -> String {
    sink.signal("INT");
    sink.wait(SOON).succeeded().stdout
}

fn subscribe(tidegate: &Tidegate, sink: &Tidegate, secret: &str) {
    let url = format!("http://{}/hooks", sink.addr());
    let new = json!({"url": url, "event_types": ["order.*"], "secret": secret, "retry_schedule": ["10ms", "10ms"]});
    Call::post("/v1/subscriptions", new).to(tidegate.addr()).expect(201);
}

fn post(tidegate: &Tidegate, id: &str) {
    let event = json!({"id": id, "type": "order.created", "data": {"order": 1}});
    Call::post("/v1/events", event).to(tidegate.addr()).expect(202);
}

pub(crate) const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
const OTHER: &str = "whsec_YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXphYmNkZWY=";

#[test]
fn a_sink_verifies_and_shows_a_real_delivery() {
    let tidegate = Setup::serve().start();
    let sink = sink(&["--secret", OTHER, "--secret", SECRET]);
    subscribe(&tidegate, &sink, SECRET);
    post(&tidegate, "order-1");
    let counts = received(&sink, 1);
    assert_eq!((&counts["verified"], &counts["not_verified"]), (&json!(1), &json!(0)), "{counts}");
    let shown = summary(sink);
    let line = shown.lines().find(|line| line.contains("order-1")).unwrap_or_else(|| panic!("{shown}"));
    assert!(line.contains("order.created") && line.contains("✓ verified") && line.contains("200"), "{line}");
    assert!(!line.contains('\u{1b}'), "a file gets no colours: {line:?}");
    let row = |name: &str| shown.lines().find(|line| line.trim_start().starts_with(name)).map(str::to_owned);
    assert!(row("received").is_some_and(|row| row.contains(" 1 ")), "{shown}");
    assert!(row("latency").is_some_and(|row| row.contains("p99")), "{shown}");
}

#[test]
fn a_wrong_secret_is_reported_as_not_verified() {
    let tidegate = Setup::serve().start();
    let sink = sink(&["--secret", OTHER]);
    subscribe(&tidegate, &sink, SECRET);
    post(&tidegate, "order-1");
    // It refuses like a real receiver would, so the delivery is retried until it fails.
    wait_until(SOON, "the delivery to fail", || {
        tidegate.get("/v1/deliveries").expect(200)["data"][0]["status"] == "failed"
    });
    let counts = counts(&sink);
    assert_eq!((&counts["verified"], &counts["not_verified"]), (&json!(0), &json!(3)), "{counts}");
    assert_eq!((&counts["distinct"], &counts["retries"], &counts["duplicates"]), (&json!(1), &json!(2), &json!(0)));
    let shown = summary(sink);
    assert!(shown.contains("✗ not verified 401") && shown.contains("retry"), "{shown}");
}

#[test]
fn a_sink_fails_and_counts_what_is_asked_of_it() {
    let sink = sink(&["--status", "503", "--quiet", "--delay", "1ms"]);
    let call = |id: &str| {
        let call = Call::post("/a", json!({"type": "t", "data": 1})).header("webhook-id", id);
        call.to(sink.addr()).status
    };
    assert_eq!((call("x"), call("x"), call("prd_r_0"), call("prd_r_2")), (503, 503, 503, 503));
    assert_eq!(Call::post("/a", json!(1)).to(sink.addr()).status, 503);
    let counts = counts(&sink);
    let expected = json!({"received": 5, "distinct": 3, "retries": 1, "duplicates": 0, "missing": 1, "failed": 5,
        "verified": 0, "not_verified": 0, "without_id": 1, "latency_us": null});
    assert_eq!(counts, expected);
    let shown = summary(sink);
    assert!(shown.contains("2 came, 1 missing: 1"), "{shown}");
    assert!(!shown.contains("503"), "--quiet shows no calls: {shown}");
}

#[test]
fn a_sink_that_hangs_still_ends_at_once() {
    let sink = sink(&["--hang"]);
    let mut caller = crate::support::Connection::open(sink.addr()).unwrap();
    caller.send(b"POST / HTTP/1.1\r\nhost: x\r\nwebhook-id: a\r\ncontent-length: 2\r\n\r\n{}").unwrap();
    received(&sink, 1);
    sink.terminate();
    assert!(sink.wait(Duration::from_secs(10)).succeeded().stdout.contains("no answer"));
}

/// Whoever left before was counted as answered well, and what came again for that as a duplicate.
#[test]
fn a_caller_that_leaves_before_its_late_answer_got_none() {
    let sink = sink(&["--delay", "2s"]);
    let mut caller = crate::support::Connection::open(sink.addr()).unwrap();
    caller.send(b"POST / HTTP/1.1\r\nhost: x\r\nwebhook-id: a\r\ncontent-length: 2\r\n\r\n{}").unwrap();
    received(&sink, 1);
    drop(caller);
    let call = || Call::post("/", json!({})).header("webhook-id", "a").to(sink.addr()).status;
    let so_far = || ["received", "distinct", "retries", "duplicates", "failed"].map(|name| counts(&sink)[name].clone());
    assert_eq!(call(), 200);
    assert_eq!(so_far(), [2, 1, 1, 0, 1], "{}", sink.output());
    assert_eq!(call(), 200);
    assert_eq!(so_far(), [3, 1, 1, 1, 1], "{}", sink.output());
}

#[test]
fn mistakes_of_a_sinks_owner_are_one_sentence() {
    let sink = sink(&[]);
    let addr = sink.addr().to_string();
    for (args, code, says) in [
        (&["--addr", &addr][..], 1, "choose another address with --addr"),
        (&["--secret", "hunter2"], 2, "--secret: this is no signing secret: write the whsec_"),
    ] {
        let ended = Setup::command(&[&["sink"], args].concat()).run();
        assert_eq!(ended.code, Some(code), "{}", ended.output);
        assert!(ended.output.contains(says) && ended.output.lines().count() == 1, "{}", ended.output);
        assert!(!ended.output.contains("hunter2"), "{}", ended.output);
    }
    for args in [["--fail-rate", "2"], ["--status", "99"], ["--delay", "soon"], ["--addr", "nowhere"]] {
        assert_eq!(Setup::command(&[&["sink"], &args[..]].concat()).run().code, Some(2), "{args:?}");
    }
}
