//! Runs a test again in a process of its own: to measure its memory, to give it an environment, or to put it into a
//! network namespace in which nothing can leave and every internal address is a trap.

#![expect(clippy::print_stdout, reason = "what the child said belongs to the test's output")]

use std::{env, path::Path, process::Command};

use testkit::{Unavailable, ledger};

const MARK: &str = "TIDEGATE_TEST_IN_OWN_PROCESS";

/// The one "public" address of the namespace. Traffic to it stays in the namespace.
pub(super) const PUBLIC: &str = "93.184.216.34";

const PREPARE: &str = "ip link set lo up \
    && for ip in 169.254.169.254/32 10.0.0.1/32 100.64.0.1/32 192.168.1.1/32 172.16.0.1/32 93.184.216.34/32; \
       do ip addr add $ip dev lo || exit 1; done \
    && ip -6 addr add fd00:ec2::254/128 dev lo \
    && ip -6 addr add fec0::1/128 dev lo";

/// True inside; outside it runs the test inside, and is false.
pub(super) fn inside(test: &str) -> bool {
    let is_inside = is_inside();
    if !is_inside {
        run(Command::new(env::current_exe().unwrap()), test);
    }
    is_inside
}

/// The same in a namespace; where none can be had the test is skipped, on record, and fails under `CI=true`.
pub(super) fn inside_namespace(test: &str) -> bool {
    if is_inside() {
        return true;
    }
    match namespace() {
        Ok(()) => run(unshare(&format!("{PREPARE} && exec \"$0\" \"$@\"")), test),
        Err(unavailable) => ledger::skip(&unavailable),
    }
    false
}

/// Can there be one, with all its addresses?
fn namespace() -> Result<(), Unavailable> {
    let because = |reason: &str| Unavailable::program("a network namespace", reason.trim());
    match unshare(PREPARE).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(because(&String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(because(&format!("unshare cannot run ({error}): apt-get install util-linux"))),
    }
}

/// Runs a shell script in a namespace, with this binary as its `$0`.
fn unshare(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "sh", "-c", script]).arg(env::current_exe().unwrap());
    command
}

#[expect(clippy::disallowed_methods, reason = "a mark between a test and its own child")]
fn is_inside() -> bool {
    env::var_os(MARK).is_some()
}

fn run(mut command: Command, test: &str) {
    command.args(["--exact", test, "--nocapture"]).env(MARK, "1");
    // Whoever asks the environment for a proxy is sent to a trap.
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        command.env(name, "http://10.0.0.1:3128");
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    let name = Path::new(test).display();
    assert!(output.status.success() && text.contains("1 passed"), "{name} failed in its own process");
}
