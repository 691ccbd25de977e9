//! A server lives exactly as long as its owner, however the owner ends.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use testkit::{
    need,
    process::{Plan, Process},
    redis::Server,
    wait_until,
};

const LIMIT: Duration = Duration::from_secs(10);
const OWNER: &str = "TESTKIT_TEST_IS_OWNER";

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn sleeper(name: &str, script: &str) -> (Process, PathBuf) {
    let folder = env::temp_dir().join(format!("testkit-it-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let plan = Plan {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        folder: folder.clone(),
        user: None,
        last_signal: "KILL",
    };
    (Process::start(plan).unwrap(), folder)
}

/// Not a test of its own: the owner that the test below starts in a process of its own, and kills.
#[test]
fn an_owner_of_servers_for_the_test_below() {
    if env::var_os(OWNER).is_none() {
        return;
    }
    let redis = need!(Server::start());
    let postgres = need!(testkit::postgres::Server::start());
    println!("\nowns {} {}", redis.pid().unwrap(), postgres.pid().unwrap());
    loop {
        std::thread::park();
    }
}

#[test]
fn kill_9_of_the_owner_ends_its_servers_and_removes_their_folders() {
    let _installed = (need!(testkit::redis()), need!(testkit::postgres()));
    let mut owner: Child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "process::an_owner_of_servers_for_the_test_below", "--nocapture"])
        .env(OWNER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines().map(Result::unwrap);
    let pids = lines.find_map(|line| line.strip_prefix("owns ").map(str::to_owned)).unwrap();
    let pids: Vec<u32> = pids.split(' ').map(|pid| pid.parse().unwrap()).collect();
    let folders: Vec<PathBuf> = pids.iter().map(|pid| fs::read_link(format!("/proc/{pid}/cwd")).unwrap()).collect();
    assert!(folders.iter().all(|folder| folder.exists()));

    owner.kill().unwrap();
    owner.wait().unwrap();
    for (pid, folder) in pids.iter().zip(&folders) {
        wait_until(LIMIT, format!("the end of server {pid}"), || !is_alive(*pid));
        wait_until(LIMIT, format!("the removal of {}", folder.display()), || !folder.exists());
    }
}

#[test]
fn dropping_the_handle_ends_the_server_at_once() {
    let server = need!(Server::start());
    let pid = server.pid().unwrap();
    let folder = fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
    server.stop();
    drop(server);
    assert!(!is_alive(pid));
    assert!(!folder.exists());
}

#[test]
fn a_process_can_be_killed_and_started_again_in_the_same_folder() {
    let (process, folder) = sleeper("again", "echo started >>starts; exec sleep 60");
    let first = process.pid().unwrap();
    let starts = folder.join("starts");
    wait_until(LIMIT, "the first start", || starts.exists());
    process.kill();
    assert!(!is_alive(first) && !process.is_running());

    process.start_again().unwrap();
    assert_ne!(process.pid(), Some(first));
    wait_until(LIMIT, "the second start", || fs::read_to_string(&starts).unwrap() == "started\nstarted\n");
    drop(process);
    assert!(!folder.exists());
}

#[test]
fn a_process_that_ends_by_itself_is_noticed_and_quoted() {
    let (process, _) = sleeper("ends", "echo cannot open the thing; exit 3");
    let error = process.wait_until_ready(LIMIT, || false).unwrap_err();
    assert!(error.to_string().contains("cannot open the thing"), "{error}");
    assert!(!process.is_running());
}

/// Its shell had forgotten it, and would not end it.
#[test]
fn a_process_that_ended_by_itself_can_be_started_again() {
    let (process, _) = sleeper("ended", "exit 3");
    wait_until(LIMIT, "its end", || !process.is_running());
    process.start_again().unwrap();
}

#[test]
fn a_wait_says_what_it_waited_for() {
    let words = testkit::wait::try_wait_until(Duration::ZERO, "the moon", || None::<()>).unwrap_err();
    assert_eq!(words.to_string(), "waited 0ns in vain for the moon");
}
