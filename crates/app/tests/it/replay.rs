//! `tidegate replay`: what failed is sent again, counted first if asked; watching can end before the job does.

use std::time::Duration;

use serde_json::json;
use testkit::wait_until;

use crate::{
    sink::{counts, sink},
    support::{Call, Ended, SOON, Setup, Tidegate},
};

fn setup(tidegate: &Tidegate, args: &[&str]) -> Setup {
    let url = format!("http://{}", tidegate.addr());
    args.iter().fold(Setup::command(&["replay", "--url", &url]), |setup, arg| setup.arg(arg))
}

fn replay(tidegate: &Tidegate, args: &[&str]) -> Ended {
    setup(tidegate, args).spawn().wait(Duration::from_secs(60))
}

#[track_caller]
fn assert_row(ended: &Ended, name: &str, number: &str) {
    let row = ended.stdout.lines().find(|line| line.trim_start().starts_with(name));
    assert_eq!(row.and_then(|row| row.split_whitespace().last()), Some(number), "{name} in {}", ended.output);
}

fn failed(tidegate: &Tidegate) -> usize {
    let failed = Call::get("/v1/deliveries?status=failed").to(tidegate.addr()).expect(200);
    failed["data"].as_array().unwrap().len()
}

#[test]
fn what_failed_is_counted_and_then_sent_again() {
    let tidegate = Setup::serve().start();
    let [bad, good] = [sink(&["--quiet", "--status", "500"]), sink(&["--quiet"])];
    let new = json!({"url": format!("http://{}", bad.addr()), "event_types": ["order.*"], "retry_schedule": []});
    let subscription = Call::post("/v1/subscriptions", new).to(tidegate.addr()).expect(201);
    for number in 0..3 {
        let event = json!({"id": format!("e{number}"), "type": "order.created", "data": 1});
        Call::post("/v1/events", event).to(tidegate.addr()).expect(202);
    }
    wait_until(SOON, "three failures", || failed(&tidegate) == 3);
    let id = subscription["id"].as_str().unwrap();
    let better = json!({"url": format!("http://{}", good.addr())});
    Call::new("PATCH", &format!("/v1/subscriptions/{id}")).json(better).to(tidegate.addr()).expect(200);

    let ended = replay(&tidegate, &["--dry-run", "--type", "order.*", "--since", "1h"]).succeeded();
    assert_row(&ended, "requeued", "3");
    assert!(ended.stdout.contains("nothing was changed"), "{}", ended.output);
    assert_eq!(failed(&tidegate), 3);
    let ended = replay(&tidegate, &["--subscription", id]).succeeded();
    assert_row(&ended, "requeued", "3");
    wait_until(SOON, "all three", || counts(&good)["distinct"] == 3);

    let one = Call::get("/v1/deliveries?limit=1").to(tidegate.addr()).expect(200)["data"][0]["id"].clone();
    assert_row(&replay(&tidegate, &[one.as_str().unwrap()]).succeeded(), "requeued", "1");
    wait_until(SOON, "it again", || counts(&good)["duplicates"] == 1);
}

#[test]
fn ctrl_c_leaves_the_job_and_says_how_to_follow_it() {
    // Nobody works on jobs here, so this one waits.
    let tidegate = Setup::serve().arg("--roles").arg("api").start();
    let watching = setup(&tidegate, &[]).spawn();
    let jobs = || Call::get("/v1/jobs").to(tidegate.addr()).expect(200)["data"].clone();
    wait_until(SOON, "the job", || jobs()[0]["state"] == "pending");
    watching.signal("INT");
    let ended = watching.wait(SOON).succeeded();
    let id = jobs()[0]["id"].as_str().unwrap().to_owned();
    assert!(ended.stdout.contains(&format!("tidegate replay --follow {id}")), "{}", ended.output);
    assert_eq!(jobs()[0]["state"], "pending", "it is still there");

    let following = setup(&tidegate, &["--follow", &id]).spawn();
    replay(&tidegate, &["--cancel", &id]).succeeded();
    let ended = following.wait(SOON);
    assert_eq!(ended.code, Some(1), "{}", ended.output);
    assert!(ended.output.contains("cancelled before its end"), "{}", ended.output);
    assert_eq!(replay(&tidegate, &["--cancel", &id]).code, Some(1), "it has ended");
    assert_eq!(replay(&tidegate, &["--missing"]).code, Some(2), "since is needed");
    assert_eq!(replay(&tidegate, &["--cancel", &id, "--dry-run"]).code, Some(2), "it would have been cancelled");
    assert_eq!(replay(&tidegate, &["--since", "yesterday"]).code, Some(2));
}

/// It would have asked for ever.
#[test]
fn with_a_key_that_is_revoked_it_ends_and_names_the_job() {
    // Nobody works on jobs here, so this one waits.
    let tidegate = Setup::locked().arg("--roles").arg("api").start();
    let made = Call::post("/admin/tenants/default/keys", json!({"name": "replay"}));
    let made = made.admin().to(tidegate.addr()).expect(201);
    let watching = setup(&tidegate, &["--key", made["key"].as_str().unwrap()]).spawn();
    let jobs = || Call::get("/v1/jobs").admin().to(tidegate.addr()).expect(200)["data"].clone();
    wait_until(SOON, "the job", || jobs()[0]["state"] == "pending");
    let key = format!("/admin/tenants/default/keys/{}", made["id"].as_str().unwrap());
    Call::new("DELETE", &key).admin().to(tidegate.addr()).expect(204);
    let ended = watching.wait(SOON);
    assert_eq!(ended.code, Some(1), "{}", ended.output);
    let id = jobs()[0]["id"].as_str().unwrap().to_owned();
    assert!(ended.output.contains(&format!("the job {id} cannot be followed any further")), "{}", ended.output);
    assert!(ended.output.contains("--key or TIDEGATE_KEY"), "{}", ended.output);
    assert_eq!(jobs()[0]["state"], "pending", "it is still there");
}
