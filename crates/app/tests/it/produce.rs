//! `tidegate produce`: accepted = delivered, or it says so and fails.

use std::time::Duration;

use serde_json::json;
use testkit::wait_until;

use crate::{
    sink::{SECRET, counts, sink},
    support::{ADMIN_KEY, Backend, Call, Ended, SOON, Setup, Tidegate, each_queue},
};

each_queue! {
    every_event_of_a_run_is_accepted_and_delivered
}

/// For a run on a machine that is busy with other tests.
const A_RUN: Duration = Duration::from_secs(120);

fn start(tidegate: &Tidegate, sink: &Tidegate, args: &[&str]) -> Tidegate {
    let (url, sink) = (format!("http://{}", tidegate.addr()), format!("http://{}", sink.addr()));
    let setup = Setup::command(&["produce", "--url", &url, "--sink", &sink]);
    args.iter().fold(setup, |setup, arg| setup.arg(arg)).spawn()
}

fn produce(tidegate: &Tidegate, sink: &Tidegate, args: &[&str]) -> Ended {
    start(tidegate, sink, args).wait(A_RUN)
}

/// Ctrl-C, once the sink has had so many calls.
fn stopped(run: Tidegate, sink: &Tidegate, calls: u64) -> Ended {
    wait_until(SOON, "calls", || counts(sink)["received"].as_u64() >= Some(calls));
    run.signal("INT");
    let ended = run.wait(SOON);
    assert_eq!(ended.code, Some(1), "{}", ended.output);
    assert!(ended.output.contains("tidegate: stopped before the end"), "{}", ended.output);
    ended
}

#[track_caller]
fn assert_row(ended: &Ended, name: &str, number: &str) {
    let row = ended.stdout.lines().find(|line| line.trim_start().starts_with(name));
    let found = row.and_then(|row| row.split_whitespace().nth(1));
    assert_eq!(found, Some(number), "{name} in {}", ended.output);
}

fn every_event_of_a_run_is_accepted_and_delivered(backend: &Backend) {
    let tidegate = backend.under(Setup::serve()).start();
    let sink = sink(&["--quiet"]);
    let args = ["--events", "2000", "--subscriptions", "7", "--batch", "100", "--concurrency", "4"];
    let ended = produce(&tidegate, &sink, &args).succeeded();
    for (name, number) in [("accepted", "2,000"), ("delivered", "2,000"), ("failed", "0")] {
        assert_row(&ended, name, number);
    }
    assert!(ended.stdout.contains("p99"), "{}", ended.stdout);
    let counts = counts(&sink);
    assert_eq!((&counts["distinct"], &counts["missing"]), (&json!(2000), &json!(0)), "{counts}");
    let left = tidegate.get("/v1/subscriptions").expect(200);
    assert_eq!(left["data"], json!([]), "its subscriptions are gone");
}

#[test]
fn single_events_at_a_rate() {
    let tidegate = Setup::serve().start();
    let sink = sink(&["--quiet", "--secret", SECRET]);
    let ended = produce(&tidegate, &sink, &["--events", "50", "--rate", "500/s", "--secret", SECRET]).succeeded();
    assert_row(&ended, "delivered", "50");
    assert_eq!(counts(&sink)["verified"], 50);
}

#[test]
fn what_fails_at_first_is_followed_until_it_is_delivered() {
    let tidegate = Setup::serve().start();
    let sink = sink(&["--quiet", "--fail-rate", "0.05"]);
    let ended = produce(&tidegate, &sink, &["--events", "300", "--batch", "50"]).succeeded();
    assert_row(&ended, "delivered", "300");
    let counts = counts(&sink);
    assert_eq!((&counts["distinct"], &counts["duplicates"]), (&json!(300), &json!(0)), "{counts}");
    assert!(counts["retries"].as_u64() > Some(0), "{counts}");
}

#[test]
fn a_locked_door_is_opened_with_a_key() {
    let tidegate = Setup::locked().start();
    let sink = sink(&["--quiet"]);
    // A server that is not in dev mode calls no private address, so it is only the intake that can be tried here.
    let args = ["--events", "50", "--subscriptions", "0"];
    let ended = produce(&tidegate, &sink, &args);
    assert_eq!(ended.code, Some(1), "{}", ended.output);
    assert!(ended.output.contains("--key or TIDEGATE_KEY"), "{}", ended.output);
    let ended = produce(&tidegate, &sink, &[&args[..], &["--key", ADMIN_KEY]].concat()).succeeded();
    assert_row(&ended, "accepted", "50");
}

#[test]
fn what_the_sink_refuses_is_told_and_fails_the_run() {
    let tidegate = Setup::serve().start();
    let sink = sink(&["--status", "410", "--quiet"]);
    let ended = produce(&tidegate, &sink, &["--events", "5", "--patience", "2s"]);
    assert_eq!(ended.code, Some(1), "{}", ended.output);
    assert_row(&ended, "accepted", "5");
    assert_row(&ended, "delivered", "0");
    assert!(ended.output.contains("tidegate: 0 of 5 accepted events were delivered"), "{}", ended.output);
    assert!(ended.output.contains("one says: the receiver answered 410"), "{}", ended.output);
}

/// It ended without a word of what it had done.
#[test]
fn a_run_that_is_stopped_tells_what_was_accepted_until_then() {
    let tidegate = Setup::serve().start();
    let sink = sink(&["--quiet"]);
    let run = start(&tidegate, &sink, &["--events", "100000", "--rate", "100/s"]);
    let ended = stopped(run, &sink, 30);
    let accepted = tidegate.get("/v1/events?limit=1000").expect(200)["data"].as_array().unwrap().len();
    assert_row(&ended, "accepted", &accepted.to_string());
    assert!(ended.stdout.contains("intake"), "{}", ended.stdout);
    assert_eq!(tidegate.get("/v1/subscriptions").expect(200)["data"], json!([]));
}

#[test]
fn a_run_that_is_stopped_while_it_waits_tells_what_was_delivered_until_then() {
    let tidegate = Setup::serve().start();
    let sink = sink(&["--quiet", "--status", "500"]);
    let run = start(&tidegate, &sink, &["--events", "2"]);
    // The second call for each comes a second after both were accepted.
    let ended = stopped(run, &sink, 4);
    for (name, number) in [("accepted", "2"), ("delivered", "0"), ("waiting", "2")] {
        assert_row(&ended, name, number);
    }
}

#[test]
fn without_a_server_or_a_sink_it_says_what_to_start() {
    let sink = sink(&[]);
    let nobody = Setup::command(&[]);
    let nowhere = format!("http://{}", nobody.addr());
    let ended = Setup::command(&["produce", "--url", &nowhere]).run();
    assert_eq!(ended.code, Some(1));
    assert!(ended.output.contains(&format!("no Tidegate answers at {nowhere}: start one with `tidegate serve`")));
    let wrong = format!("http://{}", sink.addr());
    let ended = Setup::command(&["produce", "--url", &wrong]).run();
    assert!(ended.output.contains("check --url"), "{}", ended.output);
    let tidegate = Setup::serve().start();
    let url = format!("http://{}", tidegate.addr());
    let ended = Setup::command(&["produce", "--url", &url, "--sink", &nowhere]).run();
    assert!(ended.output.contains("start `tidegate sink`"), "{}", ended.output);
    for args in [&["--url", "nonsense"][..], &["--type", "a b"], &["--secret", "x"], &["--size", "big"]] {
        let ended = Setup::command(&[&["produce"], args].concat()).run();
        assert_eq!(ended.code, Some(2), "{}", ended.output);
    }
    let left = Call::get("/v1/subscriptions").to(tidegate.addr()).expect(200);
    assert_eq!(left["data"], json!([]));
}
