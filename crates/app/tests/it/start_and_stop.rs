//! From start to ready, and from SIGTERM to gone: nothing accepted is lost, nothing hangs for ever.

use std::{
    fs,
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use testkit::wait_until;

use crate::support::{Call, Connection, SOON, Setup};

/// The body that `/admin/tenants` waits for in a request in flight.
fn tenant(name: &str) -> String {
    format!(r#"{{"name": "{name}"}}"#)
}

#[test]
fn is_ready_within_a_second_and_idles_small() {
    // The least of five: other tests on the same cores only ever add to the time.
    let mut fastest = Duration::MAX;
    let [mut resident_kib, mut own_kib] = [u64::MAX; 2];
    for _ in 0..5 {
        let started = Instant::now();
        let tidegate = Setup::serve().start();
        fastest = fastest.min(started.elapsed());
        let status = fs::read_to_string(format!("/proc/{}/status", tidegate.pid())).unwrap();
        let kib = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        };
        (resident_kib, own_kib) = (resident_kib.min(kib("VmRSS:")), own_kib.min(kib("RssAnon:")));
    }
    println!("ready after {fastest:?}, {resident_kib} KiB resident, {own_kib} KiB of them its own");
    assert!(fastest < Duration::from_secs(1), "{fastest:?}");
    assert!(own_kib < 16 * 1024, "{own_kib} KiB");
    // The bar is 40 MiB in all; a release has 41 to 43. Most of it are pages of the file, of which the kernel maps sixteen at a time:
    // it is the code of all that there is, and a debug build has more.
    let most_mib = if cfg!(debug_assertions) { 50 } else { 40 };
    assert!(resident_kib < most_mib * 1024, "{resident_kib} KiB");
}

#[test]
fn sigterm_ends_it_with_code_0_and_leaves_nothing_behind() {
    let tidegate = Setup::serve().start();
    let (addr, ops_addr, pid) = (tidegate.addr(), tidegate.ops_addr(), tidegate.pid());
    let ended = tidegate.stop().succeeded();
    assert!(TcpStream::connect(addr).is_err() && TcpStream::connect(ops_addr).is_err());
    assert!(fs::metadata(format!("/proc/{pid}")).is_err());
    let mut left: Vec<String> = fs::read_dir(ended.folder().join("data"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with("-wal") && !name.ends_with("-shm"))
        .collect();
    left.sort();
    assert_eq!(left, ["master.key", "tidegate.db", "tidegate.migrate.lock", "tidegate.worker.lock"]);
}

fn mode(path: impl AsRef<Path>) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn what_it_keeps_is_its_owners_alone() {
    let tidegate = Setup::serve().start();
    Call::post("/admin/tenants", serde_json::json!({"name": "a"})).to(tidegate.addr()).expect(201);
    let data = tidegate.data_dir();
    assert_eq!(mode(&data), 0o700);
    for file in fs::read_dir(data).unwrap() {
        let file = file.unwrap().path();
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

#[test]
fn a_folder_that_is_there_keeps_its_mode() {
    let setup = Setup::serve();
    let data = setup.folder().join("data");
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
    let tidegate = setup.start();
    assert_eq!((mode(&data), mode(data.join("tidegate.db"))), (0o755, 0o600));
    // So does a file: whoever lets a backup read it has a reason.
    fs::set_permissions(data.join("tidegate.db"), fs::Permissions::from_mode(0o640)).unwrap();
    let tidegate = tidegate.stop().succeeded().again().start();
    assert_eq!(mode(tidegate.data_dir().join("tidegate.db")), 0o640);
}

#[test]
fn ctrl_c_ends_it_like_sigterm() {
    let tidegate = Setup::serve().start();
    tidegate.signal("INT");
    tidegate.wait(SOON).succeeded();
}

#[test]
fn it_starts_again_on_what_it_left() {
    let tidegate = Setup::serve().start();
    Call::post("/admin/tenants", serde_json::json!({"id": "kept", "name": "Kept"})).to(tidegate.addr()).expect(201);
    let tidegate = tidegate.stop().succeeded().again().start();
    tidegate.get("/admin/tenants/kept").expect(200);
    tidegate.stop().succeeded();
}

#[test]
fn every_request_in_flight_is_answered_after_sigterm() {
    let tidegate = Setup::serve().start();
    let mut open: Vec<Connection> = (0..50)
        .map(|number| Connection::in_flight(tidegate.addr(), "/admin/tenants", tenant(&number.to_string()).len()))
        .collect();
    tidegate.terminate();
    tidegate.wait_until_closed();
    for (number, connection) in open.iter_mut().enumerate() {
        connection.send(tenant(&number.to_string()).as_bytes()).unwrap();
        let created = connection.receive().unwrap().expect(201);
        assert_eq!(created["name"], number.to_string());
    }
    tidegate.wait(SOON).succeeded();
}

#[test]
fn no_answer_is_cut_when_it_stops_under_load() {
    let tidegate = Setup::serve().start();
    let (answers, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    // Without a connection there is no request; with an answer, it is whole and good.
                    if let Ok(response) = Call::get("/v1/me").try_to(tidegate.addr()) {
                        assert_eq!(response.status, 200, "{response:?}");
                        answers.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        wait_until(SOON, "some answers", || answers.load(Ordering::Relaxed) > 200);
        tidegate.terminate();
        tidegate.wait_until_closed();
        is_over.store(true, Ordering::Relaxed);
    });
    tidegate.wait(SOON).succeeded();
}

#[test]
fn a_second_sigterm_ends_it_at_once() {
    let tidegate = Setup::serve().start();
    let _hanging = Connection::in_flight(tidegate.addr(), "/admin/tenants", 100);
    tidegate.terminate();
    tidegate.wait_until_closed();
    let second = Instant::now();
    tidegate.stop().succeeded();
    // Otherwise it would wait for the request that hangs, half a minute.
    assert!(second.elapsed() < Duration::from_secs(10), "{:?}", second.elapsed());
}

#[test]
fn it_serves_while_it_says_that_it_leaves() {
    let tidegate = Setup::serve().env("SHUTDOWN_DELAY", "3s").start();
    tidegate.terminate();
    wait_until(SOON, "readiness to end", || tidegate.get("/health/ready").status == 503);
    assert_eq!(tidegate.get("/health/ready").json()["status"], "shutting_down");
    assert_eq!(Call::get("/health/ready").to(tidegate.ops_addr()).json()["status"], "shutting_down");
    assert_eq!(tidegate.get("/health/live").status, 200);
    Call::post("/admin/tenants", serde_json::json!({"name": "late"})).to(tidegate.addr()).expect(201);
    tidegate.wait(SOON).succeeded();
}

#[test]
fn health_and_metrics_are_there_until_everything_in_flight_has_ended() {
    let tidegate = Setup::serve().start();
    let body = tenant("late");
    let mut open = Connection::in_flight(tidegate.addr(), "/admin/tenants", body.len());
    let mut watching = Connection::open(tidegate.ops_addr()).unwrap();
    tidegate.terminate();
    tidegate.wait_until_closed();
    let report = Call::get("/health/ready").to(tidegate.ops_addr()).expect(503);
    assert_eq!(report["status"], "shutting_down");
    assert_eq!(Call::get("/health/live").to(tidegate.ops_addr()).status, 200);
    assert!(tidegate.metric("tidegate_http_connections").is_some());
    watching.send(b"GET /health/ready HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    watching.receive().unwrap().expect(503);
    open.send(body.as_bytes()).unwrap();
    open.receive().unwrap().expect(201);
    tidegate.wait(SOON).succeeded();
}

#[test]
fn the_drain_timeout_cuts_a_request_that_hangs() {
    let tidegate = Setup::serve().env("DRAIN_TIMEOUT", "1s").start();
    let mut hanging = Connection::in_flight(tidegate.addr(), "/admin/tenants", 100);
    let told = Instant::now();
    let ended = tidegate.stop().succeeded();
    let took = told.elapsed();
    assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(10), "{took:?}");
    assert!(hanging.receive().is_err());
    assert!(ended.output.contains("drain_timeout"), "{}", ended.output);
}

#[test]
fn an_idle_connection_does_not_delay_the_end() {
    let tidegate = Setup::serve().start();
    let mut silent = Connection::open(tidegate.addr()).unwrap();
    let mut kept_alive = Connection::open(tidegate.addr()).unwrap();
    kept_alive.send(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let told = Instant::now();
    tidegate.stop().succeeded();
    assert!(told.elapsed() < Duration::from_secs(10), "{:?}", told.elapsed());
    assert!(silent.is_closed());
}
