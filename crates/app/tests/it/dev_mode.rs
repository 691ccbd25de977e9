//! Dev mode: open to this machine, closed to the pages in its browser, off as soon as there is an admin key.

use std::{
    fs,
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use testkit::wait_until;

use crate::support::{ADMIN_KEY, Call, SOON, Setup};

#[test]
fn dev_mode_needs_no_key_and_means_the_default_tenant() {
    let tidegate = Setup::serve().start();
    let me = tidegate.get("/v1/me").expect(200);
    assert_eq!((me["tenant"].as_str(), me["actor"].as_str()), (Some("default"), Some("dev")));
    Call::post("/admin/tenants", json!({"id": "acme", "name": "Acme"})).to(tidegate.addr()).expect(201);
    let me = Call::get("/v1/me").header("x-tenant", "acme").to(tidegate.addr()).expect(200);
    assert_eq!(me["tenant"], "acme");
    Call::get("/v1/me").header("x-tenant", "nobody").to(tidegate.addr()).expect_problem(404, "not_found");
    assert!(tidegate.output().contains("Dev mode"), "{}", tidegate.output());
}

#[test]
fn the_first_screen_holds_a_first_delivery_to_copy() {
    let tidegate = Setup::serve().start();
    let addr = tidegate.addr();
    wait_until(SOON, "the first screen", || tidegate.output().contains("Stop it with"));
    let screen = tidegate.output();
    let receiver = screen.lines().find_map(|line| line.strip_suffix(" sink")).unwrap_or_else(|| panic!("{screen}"));
    assert!(fs::metadata(receiver.trim()).is_ok(), "{receiver}");
    let mut answers = screen.lines().filter_map(|line| line.trim().strip_prefix("curl ")).map(|curl| {
        let (url, body) = curl.split_once(" -d ").unwrap_or((curl, ""));
        let path = url.strip_prefix(&format!("http://{addr}")).unwrap();
        let body: Value = serde_json::from_str(body.trim_matches('\'')).unwrap_or_default();
        if body.is_null() { Call::get(path) } else { Call::post(path, body) }.to(addr)
    });
    answers.next().unwrap().expect(201);
    answers.next().unwrap().expect(202);
    assert_eq!(answers.next().unwrap().expect(200)["data"].as_array().map(Vec::len), Some(1));
}

#[test]
fn the_first_screen_and_the_log_name_the_port_that_was_free() {
    let tidegate = Setup::serve().env("ADDR", "127.0.0.1:0").env("OPS_ADDR", "127.0.0.1:0").spawn();
    wait_until(SOON, "the first screen", || tidegate.output().contains("Stop it with"));
    let screen = tidegate.output();
    assert!(!screen.contains("127.0.0.1:0"), "{screen}");
    let urls = screen.lines().filter_map(|line| line.split_once("http://")).map(|(_, rest)| rest);
    let place = |path: &str| {
        let url = urls.clone().find(|url| url.trim_end().ends_with(path)).unwrap_or_else(|| panic!("{screen}"));
        url.trim_end().trim_end_matches(path).rsplit('/').next().unwrap().parse().unwrap()
    };
    Call::get("/docs").to(place("/docs"));
    assert!(Call::get("/metrics").to(place("/metrics")).body.contains("tidegate_"));
}

/// `serve | head` ended in a panic.
#[test]
fn a_reader_of_the_first_screen_that_goes_away_is_no_error() {
    let setup = Setup::serve();
    let [ops, grpc] = [Setup::serve(), Setup::serve()];
    let mut child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--", env!("CARGO_BIN_EXE_tidegate"), "serve"])
        .args(["--data-dir", "data", "--addr", &setup.addr().to_string()])
        .args(["--ops-addr", &ops.addr().to_string(), "--grpc-addr", &grpc.addr().to_string()])
        .current_dir(setup.folder())
        .env_clear()
        .stdout(Stdio::piped())
        .stderr(fs::File::create(setup.folder().join("stderr")).unwrap())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let log = || fs::read_to_string(setup.folder().join("stderr")).unwrap();
    wait_until(SOON, "it to be ready", || log().contains("Dev mode"));
    wait_until(SOON, "an answer", || Call::get("/v1/me").try_to(setup.addr()).is_ok());
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    assert!(child.wait().unwrap().success(), "{}", log());
}

#[test]
fn a_key_is_checked_even_where_none_is_needed() {
    let tidegate = Setup::serve().start();
    let made = Call::post("/admin/tenants/default/keys", json!({"name": "reader", "role": "viewer"}));
    let key = made.to(tidegate.addr()).expect(201)["key"].as_str().unwrap().to_owned();
    let create = || Call::post("/admin/tenants", json!({"name": "x"}));
    create().key(&key).to(tidegate.addr()).expect_problem(403, "admin_only");
    create().key(&key.replace("tgk_", "tgk_0")).to(tidegate.addr()).expect_problem(401, "invalid_key");
}

#[test]
fn dev_mode_refuses_what_another_sites_page_could_send() {
    let tidegate = Setup::serve().start();
    let port = tidegate.addr().port();
    let call = || Call::get("/v1/me");
    for host in ["evil.example", &format!("evil.example:{port}"), "127.0.0.1.evil.example", "10.0.0.1", "", "[::]"] {
        call().header("host", host).to(tidegate.addr()).expect_problem(403, "foreign_host");
    }
    for origin in ["http://evil.example", "null", "https://localhost.evil.example", "\u{fffd}"] {
        call().header("origin", origin).to(tidegate.addr()).expect_problem(403, "foreign_host");
    }
    for host in ["localhost", "LOCALHOST", &format!("localhost:{port}"), "127.0.0.1", &format!("[::1]:{port}")] {
        call().header("host", host).to(tidegate.addr()).expect(200);
    }
    call().header("origin", format!("http://localhost:{port}")).to(tidegate.addr()).expect(200);
}

#[test]
fn an_admin_key_locks_the_door_on_loopback_too() {
    let tidegate = Setup::serve().env("TIDEGATE_ADMIN_KEY", ADMIN_KEY).start();
    tidegate.get("/v1/me").expect_problem(401, "missing_key");
    let me = Call::get("/v1/me").admin().header("host", "tidegate.example").to(tidegate.addr()).expect(200);
    assert_eq!(me["actor"], "admin");
    assert!(!tidegate.output().contains("Dev mode"), "{}", tidegate.output());
    // What stands before the door stays open.
    for path in ["/health/live", "/health/ready", "/openapi.json", "/docs"] {
        assert_eq!(tidegate.get(path).status, 200, "{path}");
    }
}
