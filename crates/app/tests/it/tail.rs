//! `tidegate tail`: deliveries appear as they happen, filtered on request.

use std::{collections::BTreeMap, net::SocketAddr, ops::Range, time::Duration};

use serde_json::json;
use testkit::wait_until;

use crate::{
    sink::{counts, sink},
    support::{Call, SOON, Setup, Tidegate},
};

fn tail(tidegate: &Tidegate, args: &[&str]) -> Tidegate {
    let url = format!("http://{}", tidegate.addr());
    args.iter().fold(Setup::command(&["tail", "--url", &url]), |setup, arg| setup.arg(arg)).spawn()
}

fn deliver_to(tidegate: &Tidegate, receiver: SocketAddr, event: &str) {
    let new = json!({"url": format!("http://{receiver}"), "event_types": [event], "retry_schedule": []});
    Call::post("/v1/subscriptions", new).to(tidegate.addr()).expect(201);
    post(tidegate, event);
}

fn post(tidegate: &Tidegate, event: &str) {
    Call::post("/v1/events", json!({"type": event, "data": 1})).to(tidegate.addr()).expect(202);
}

#[track_caller]
fn wait_for(tail: &Tidegate, what: &[&str]) {
    wait_until(SOON, format!("{what:?}, of which there is {}", tail.output()), || {
        tail.output().lines().any(|line| what.iter().all(|what| line.contains(what)))
    });
}

#[test]
fn deliveries_are_shown_as_they_happen() {
    let tidegate = Setup::serve().start();
    let [good, bad] = [sink(&[]), sink(&["--status", "500"])];
    deliver_to(&tidegate, good.addr(), "before.it");
    let all = tail(&tidegate, &[]);
    wait_for(&all, &["before.it", "delivered", "attempt 1"]);
    let failed = tail(&tidegate, &["--status", "failed"]);
    deliver_to(&tidegate, bad.addr(), "while.it-runs");
    wait_for(&all, &["while.it-runs", "failed", "500"]);
    wait_for(&failed, &["while.it-runs", "failed", "500"]);
    post(&tidegate, "before.it");
    wait_until(SOON, "the second", || all.output().matches("before.it").count() >= 2);
    assert!(!failed.output().contains("before.it"), "{}", failed.output());
    let narrow = tail(&tidegate, &["--type", "before.it", "--lines", "1"]);
    wait_for(&narrow, &["before.it"]);
    assert_eq!(narrow.output().lines().count(), 1, "{}", narrow.output());
    for tail in [all, failed, narrow] {
        tail.signal("INT");
        tail.wait(Duration::from_secs(10)).succeeded();
    }
}

/// A look ended at the first page with something known, so an old delivery could change without a word.
#[test]
fn a_change_is_shown_however_many_came_after_it() {
    const NEWER: usize = 450;
    let tidegate = Setup::serve().start();
    let [good, bad] = [sink(&["--quiet"]), sink(&["--quiet", "--status", "500"])];
    let subscribe = |receiver: SocketAddr, event: &str| {
        let url = format!("http://{receiver}");
        let new = json!({"url": url, "event_types": [event], "retry_schedule": ["10m"], "rate_limit": 1000});
        Call::post("/v1/subscriptions", new).to(tidegate.addr()).expect(201)["id"].as_str().unwrap().to_owned()
    };
    let subscription = subscribe(bad.addr(), "old");
    subscribe(good.addr(), "new");
    let old = |number: usize| {
        post(&tidegate, "old");
        let path = "/v1/deliveries?type=old&status=retrying";
        wait_until(SOON, "the first attempt", || {
            tidegate.get(path).expect(200)["data"].as_array().unwrap().len() == number
        });
        tidegate.get(path).expect(200)["data"][0]["id"].as_str().unwrap().to_owned()
    };
    let many = || {
        let events = "{\"type\": \"new\", \"data\": 1}\n".repeat(NEWER);
        Call::new("POST", "/v1/events").body("application/x-ndjson", events).to(tidegate.addr()).expect(202);
    };
    let before = old(1);
    many();
    wait_until(SOON, "the newer ones", || {
        let path = "/v1/deliveries?type=new&status=delivered&limit=1000";
        tidegate.get(path).expect(200)["data"].as_array().unwrap().len() == NEWER
    });
    let [all, delivered] = [tail(&tidegate, &[]), tail(&tidegate, &["--status", "delivered"])];
    wait_for(&all, &["new ", "delivered"]);
    let while_it_runs = old(2);
    wait_for(&all, &["old ", "retrying"]);
    many();
    wait_until(SOON, "the newer ones", || all.output().matches("delivered").count() >= NEWER);
    let mend = Call::new("PATCH", &format!("/v1/subscriptions/{subscription}"));
    mend.json(json!({"url": format!("http://{}", good.addr())})).to(tidegate.addr()).expect(200);
    for id in [&before, &while_it_runs] {
        Call::post(&format!("/v1/deliveries/{id}/retry"), json!({})).to(tidegate.addr());
    }
    for tail in [&all, &delivered] {
        let lines = || tail.output().lines().filter(|line| line.contains("delivered  old ")).count();
        wait_until(SOON, format!("both, of which there is {}", tail.output()), || lines() == 2);
    }
}

/// Waits until the one that asks has begun: what comes from now on is new to it.
fn wait_until_it_looks(tidegate: &Tidegate) {
    let asked = || -> f64 {
        let page = Call::get("/metrics").to(tidegate.ops_addr()).body;
        let requests = page.lines().filter(|line| line.starts_with("tidegate_http_requests_total{"));
        let lists = requests.filter(|line| line.contains("route=\"/v1/deliveries\""));
        lists.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    // Four of the first look are about what is not over, in each status.
    wait_until(SOON, "a second look", || asked() >= 6.0);
}

/// Once it has met nothing that it knows, all it sees is new; past a thousand at one look it says that there were more.
#[test]
fn what_comes_after_an_empty_list_is_shown_once_and_more_than_a_look_holds_is_said() {
    const BURST: usize = 400;
    let tidegate = Setup::serve().start();
    let sink = sink(&["--quiet"]);
    let new = json!({"url": format!("http://{}", sink.addr()), "event_types": ["**"], "rate_limit": 10_000});
    Call::post("/v1/subscriptions", new).to(tidegate.addr()).expect(201);
    let tail = tail(&tidegate, &[]);
    wait_until_it_looks(&tidegate);
    let send = |numbers: Range<usize>| {
        let events = numbers.map(|number| format!("{{\"id\": \"e{number:04}\", \"type\": \"a.b\", \"data\": 1}}\n"));
        Call::new("POST", "/v1/events")
            .body("application/x-ndjson", events.collect::<String>())
            .to(tidegate.addr())
            .expect(202);
    };
    let shown = || {
        let mut shown = BTreeMap::<String, usize>::new();
        let output = tail.output();
        let lines = output.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        for line in lines.filter(|line| line.contains("  delivered  ")) {
            let id = line.split_whitespace().find(|word| word.starts_with('e')).unwrap_or_else(|| panic!("{line}"));
            *shown.entry(id.to_owned()).or_default() += 1;
        }
        shown
    };
    for sent in [BURST, 2 * BURST, 3 * BURST] {
        send(sent - BURST..sent);
        wait_until(SOON, format!("{sent} of them"), || shown().len() == sent);
    }
    assert!(shown().values().all(|times| *times == 1), "{:?}", shown());
    assert!(!tail.output().contains("more came"), "{}", tail.output());

    tail.signal("STOP");
    send(3 * BURST..6 * BURST);
    wait_until(SOON, "as many again", || counts(&sink)["distinct"] == 6 * BURST);
    tail.signal("CONT");
    wait_until(SOON, "a thousand of them", || shown().len() == 3 * BURST + 1000);
    assert!(!shown().contains_key("e1200") && shown().contains_key("e2399"), "the newest are shown");
    assert_eq!(tail.output().matches("more came since the last look").count(), 1, "{}", tail.output());
}

/// It would have asked for ever.
#[test]
fn with_a_key_that_is_revoked_it_ends_and_says_so() {
    let tidegate = Setup::locked().start();
    let made =
        Call::post("/admin/tenants/default/keys", json!({"name": "tail"})).admin().to(tidegate.addr()).expect(201);
    let tail = tail(&tidegate, &["--key", made["key"].as_str().unwrap()]);
    wait_until_it_looks(&tidegate);
    let key = format!("/admin/tenants/default/keys/{}", made["id"].as_str().unwrap());
    Call::new("DELETE", &key).admin().to(tidegate.addr()).expect(204);
    let ended = tail.wait(SOON);
    assert_eq!(ended.code, Some(1), "{}", ended.output);
    assert!(ended.output.contains("--key or TIDEGATE_KEY"), "{}", ended.output);
}

#[test]
fn as_many_lines_of_the_past_are_shown_as_are_asked_for() {
    const EVENTS: usize = 250;
    let tidegate = Setup::serve().start();
    let sink = sink(&["--quiet"]);
    deliver_to(&tidegate, sink.addr(), "order.created");
    (1..EVENTS).for_each(|_| post(&tidegate, "order.created"));
    wait_until(SOON, "everything to be delivered", || {
        let path = "/v1/deliveries?status=delivered&limit=1000";
        tidegate.get(path).expect(200)["data"].as_array().unwrap().len() == EVENTS
    });
    for (wanted, shown) in [("1000", EVENTS), ("230", 230), ("3", 3)] {
        let tail = tail(&tidegate, &["-n", wanted]);
        wait_until(SOON, "the past", || tail.output().lines().count() == shown);
    }
}

#[test]
fn what_would_never_show_anything_is_refused() {
    let tidegate = Setup::serve().start();
    for (args, code, words) in [
        (&["-n", "100000"][..], 2, "1000"),
        (&["--type", "order.*"], 2, "without `*`"),
        (&["--subscription", "nope"], 1, "nope"),
        (&["--subscription", "a b/c"], 1, "404"),
    ] {
        let ended = tail(&tidegate, args).wait(SOON);
        assert_eq!(ended.code, Some(code), "{args:?}: {}", ended.output);
        assert!(ended.output.contains(words), "{args:?}: {}", ended.output);
    }
}

#[test]
fn a_server_that_restarts_is_waited_for() {
    let tidegate = Setup::serve().start();
    let sink = sink(&["--quiet"]);
    let tail = tail(&tidegate, &[]);
    deliver_to(&tidegate, sink.addr(), "before.it");
    wait_for(&tail, &["before.it", "delivered"]);
    let tidegate = tidegate.kill();
    wait_for(&tail, &["trying again"]);
    let tidegate = tidegate.start();
    post(&tidegate, "before.it");
    wait_until(SOON, "the second", || tail.output().matches("delivered").count() == 2);
}

#[test]
fn nobody_to_follow_is_said_at_once() {
    let nobody = Setup::command(&[]);
    let ended = Setup::command(&["tail", "--url", &format!("http://{}", nobody.addr())]).run();
    assert_eq!(ended.code, Some(1), "{}", ended.output);
    assert!(ended.output.contains("start one with `tidegate serve`"), "{}", ended.output);
    assert_eq!(Setup::command(&["tail", "--status", "lost"]).run().code, Some(2));
}
