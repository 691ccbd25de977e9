//! The `servers` command: what it gives to the tests it runs, what it says afterwards, and that nothing stays behind.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use testkit::{Server, need, wait_until};

const LIMIT: Duration = Duration::from_secs(20);
const A_TEST_WITH_REDIS: &str = "redis_server::the_shared_server_keeps_a_corner_for_each_test";

/// As a user would type it: nothing of the run that this test may itself be part of.
fn servers(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_servers"));
    command.args(args).env_remove("CI").env_remove(testkit::ledger::VARIABLE);
    for server in Server::ALL {
        command.env_remove(server.variable());
    }
    command
}

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

/// A folder of one test, removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = env::temp_dir().join(format!("testkit-it-{name}-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// A test that fails halfway must not leave what it started with `up`.
struct Down<'a>(&'a [&'a str]);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        drop(servers(&[&["down", "--wipe"], self.0].concat()).output());
    }
}

/// A port that is free, and the next one too, which Kafka's controller takes.
fn free_port() -> u16 {
    let pair = || {
        let first = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
        TcpListener::bind(("127.0.0.1", first.checked_add(1)?)).ok()?;
        Some(first)
    };
    (0..100).find_map(|_| pair()).unwrap()
}

/// A machine on which only the most ordinary programs are installed.
fn bare_machine(test: &str) -> Folder {
    let folder = Folder::new(test);
    for name in ["sh", "rm", "sleep"] {
        symlink(Path::new("/bin").join(name), folder.0.join(name)).unwrap();
    }
    folder
}

#[test]
fn a_run_shares_its_servers_and_adds_up_the_results() {
    let _installed = (need!(testkit::redis()), need!(testkit::postgres()), need!(testkit::kafka()));
    let this = env::current_exe().unwrap();
    let script = format!(
        "'{0}' {A_TEST_WITH_REDIS} --exact && echo $TESTKIT_REDIS && echo $TESTKIT_POSTGRES && echo $TESTKIT_KAFKA &&
        '{0}' {A_TEST_WITH_REDIS} --exact && echo 'test result: FAILED. 3 passed; 2 failed; 1 ignored' && exit 101",
        this.display()
    );
    let output = servers(&["run", "--", "sh", "-c", &script]).output().unwrap();
    let (stdout, stderr) = text(&output);
    assert_eq!(stdout.matches("\n127.0.0.1:").count(), 3, "{stdout}");
    let end = "\nservers: 1 tests used Redis, 0 PostgreSQL, 0 Kafka; 0 skipped\n5 passed, 2 failed, 1 skipped\n";
    assert!(stdout.ends_with(end), "{stdout}");
    assert!(stderr.contains("servers: ready in"), "{stderr}");
    assert_eq!(output.status.code(), Some(101));
}

#[test]
fn a_test_without_its_server_is_reported_as_skipped_with_what_to_install() {
    let bare = bare_machine("skips");
    let this = env::current_exe().unwrap();
    let run = |ci: &str| {
        let mut command = servers(&["run", "--", this.to_str().unwrap(), A_TEST_WITH_REDIS, "--exact"]);
        command.env("PATH", &bare.0).env_remove("JAVA_HOME").env("CI", ci).output().unwrap()
    };
    let output = run("");
    let (stdout, stderr) = text(&output);
    let reason = "Redis is not available: redis-server is not installed: apt-get install redis-server";
    assert!(stdout.contains(&format!("\nskipped it::{A_TEST_WITH_REDIS}: {reason}\n")), "{stdout}");
    assert!(stdout.ends_with("\n0 passed, 0 failed, 1 skipped\n"), "{stdout}");
    assert!(stderr.contains("java is not installed: apt-get install openjdk-17-jre-headless"), "{stderr}");
    assert!(output.status.success());

    let output = run("true");
    let (stdout, _) = text(&output);
    assert!(stdout.ends_with("\n0 passed, 1 failed, 0 skipped\n"), "{stdout}");
    assert!(stdout.contains(reason), "{stdout}");
    assert!(!output.status.success());
}

#[test]
fn a_run_without_tests_fails_but_another_command_need_not_have_any() {
    let bare = bare_machine("no-tests");
    let run = |words: &[&str]| servers(words).env("PATH", &bare.0).env_remove("JAVA_HOME").output().unwrap();
    let output = run(&["run", "--", "/bin/true"]);
    assert!(!output.status.success());
    assert!(text(&output).1.ends_with("servers: no test ran\n"));
    assert!(run(&["with", "--", "/bin/true"]).status.success());
    assert_eq!(run(&["with", "--", "sh", "-c", "exit 7"]).status.code(), Some(7));
}

#[test]
fn kill_9_of_a_run_ends_its_command_and_its_servers() {
    let _installed = need!(testkit::redis());
    let script = "echo $$ $TESTKIT_REDIS; sleep 60 & wait";
    let mut run = servers(&["run", "--", "sh", "-c", script]);
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(run.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let (pid, redis) = line.trim().split_once(' ').unwrap();
    let port = redis.strip_prefix("127.0.0.1:").unwrap().parse().unwrap();
    assert!(testkit::resp::ask(port, &["PING"]).is_ok());

    run.kill().unwrap();
    run.wait().unwrap();
    wait_until(LIMIT, "the command's end", || !Path::new(&format!("/proc/{pid}")).exists());
    wait_until(LIMIT, "Redis' end", || testkit::resp::ask(port, &["PING"]).is_err());
    let folder = env::temp_dir().join(format!("testkit-run-{}", run.id()));
    wait_until(LIMIT, "the ledger's end", || !folder.exists());
}

#[test]
fn up_keeps_servers_and_data_until_down() {
    let _installed = (need!(testkit::redis()), need!(testkit::postgres()), need!(testkit::kafka()));
    let folder = Folder::new("local");
    let data = folder.0.join("data");
    let (redis, postgres, kafka) = (free_port(), free_port(), free_port());
    let ports = [redis, postgres, kafka].map(|port| port.to_string());
    let [redis_port, postgres_port, kafka_port] = ports.each_ref().map(String::as_str);
    // A relative path, as the default is one: it must mean the same place to every server.
    let depth = std::env::current_dir().unwrap().components().count() - 1;
    let relative = format!("{}{}", "../".repeat(depth), data.strip_prefix("/").unwrap().display());
    let place =
        ["--data", &relative, "--redis-port", redis_port, "--postgres-port", postgres_port, "--kafka-port", kafka_port];
    let _down = Down(&place);
    let order = |word: &str, more: &[&str]| {
        let output = servers(&[&[word], &place[..], more].concat()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        text(&output)
    };
    let exports = format!(
        "export REDIS_URL=redis://127.0.0.1:{redis}/\n\
        export DATABASE_URL=postgres://postgres@127.0.0.1:{postgres}/postgres\n\
        export KAFKA_BROKERS=127.0.0.1:{kafka}\n"
    );
    let (stdout, stderr) = order("up", &[]);
    assert_eq!(stdout, exports);
    assert_eq!(stderr.matches(" started on ").count(), 3, "{stderr}");
    testkit::resp::ask(redis, &["SET", "key", "value"]).unwrap();
    testkit::postgres::wire::query(postgres, "postgres", "CREATE TABLE kept (id int)").unwrap();

    let (stdout, stderr) = order("up", &[]);
    assert_eq!(stdout, exports);
    assert_eq!(stderr.matches(" was running on ").count(), 3, "{stderr}");

    assert_eq!(order("down", &[]).0.matches(" stopped\n").count(), 3);
    assert_eq!(order("down", &[]).0.matches(" was not running\n").count(), 3);
    order("up", &[]);
    assert_eq!(testkit::resp::ask(redis, &["GET", "key"]).unwrap().to_string(), "value");
    assert!(testkit::postgres::wire::query(postgres, "postgres", "SELECT * FROM kept").is_ok());

    order("down", &["--wipe"]);
    assert_eq!(fs::read_dir(&data).unwrap().count(), 0);
}

#[test]
fn a_typing_error_is_answered_with_help() {
    for (words, part) in [
        (&["rum"][..], "Usage:"),
        (&["up", "--redis-prot", "1"], "there is no option --redis-prot"),
        (&["up", "--redis-port", "high"], "--redis-port is not a port: high"),
        (&["down", "--data"], "--data needs a value"),
    ] {
        let output = servers(words).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output).1.contains(part), "{output:?}");
    }
}
