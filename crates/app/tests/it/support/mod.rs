//! The binary as a child process, with an environment of its own and ports nobody else has. Nothing outlives its test.

mod backend;
mod client;
mod port;

use std::{
    ffi::OsString,
    fs::{self, File},
    net::SocketAddr,
    os::unix::{ffi::OsStringExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;
use testkit::{wait::try_wait_until, wait_until};

pub(crate) use self::{
    backend::{Backend, each_backend, each_queue, on_topic},
    client::{Call, Client, Connection, NOT_PLAIN, Response},
    port::Port,
};

pub(crate) const ADMIN_KEY: &str = "an-admin-key-that-is-only-for-tests-0123456789";
pub(crate) const MASTER_KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
/// For everything that happens in milliseconds, on a machine that is busy with other tests.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// For a start with migrations and three servers to connect to, beside other tests that start their own.
const STARTED: Duration = Duration::from_mins(1);

/// `short` in `make test`, `long` in `make soak`.
pub(crate) fn size(short: usize, long: usize) -> usize {
    if std::env::var_os("SOAK").is_some() { long } else { short }
}

/// A command of the binary that has not been run yet. It sees only the environment that is set here.
pub(crate) struct Setup {
    args: Vec<String>,
    variables: Vec<(String, OsString)>,
    folder: TempDir,
    ports: [Port; 3],
}

impl Setup {
    pub(crate) fn command(args: &[&str]) -> Self {
        Setup {
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            variables: Vec::new(),
            folder: tempfile::tempdir().unwrap(),
            ports: [Port::reserve(), Port::reserve(), Port::reserve()],
        }
        .env("TIDEGATE__SERVER__DATA_DIR", "data")
    }

    /// `serve` in dev mode: free ports, SQLite in a temporary folder.
    pub(crate) fn serve() -> Self {
        let setup = Setup::command(&["serve"]);
        let [addr, ops_addr, grpc_addr] = setup.ports.each_ref().map(|port| port.addr().to_string());
        setup.env("ADDR", &addr).env("OPS_ADDR", &ops_addr).env("GRPC_ADDR", &grpc_addr)
    }

    /// `serve` with the door locked.
    pub(crate) fn locked() -> Self {
        Setup::serve().env("TIDEGATE_ADMIN_KEY", ADMIN_KEY).env("TIDEGATE_MASTER_KEY", MASTER_KEY)
    }

    pub(crate) fn env(self, name: &str, value: &str) -> Self {
        self.raw_env(name, value.as_bytes())
    }

    pub(crate) fn raw_env(mut self, name: &str, value: &[u8]) -> Self {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), OsString::from_vec(value.to_vec())));
        self
    }

    pub(crate) fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    /// A file in the folder where the binary runs.
    pub(crate) fn file(self, name: &str, text: &str) -> Self {
        fs::write(self.folder.path().join(name), text).unwrap();
        self
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.ports[0].addr()
    }

    /// Starts it, and does not wait.
    pub(crate) fn spawn(self) -> Tidegate {
        let [stdout, stderr] = ["stdout", "stderr"].map(|name| File::create(self.folder().join(name)).unwrap());
        // The kernel ends the binary when this test's thread ends, however that ends.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", env!("CARGO_BIN_EXE_tidegate")])
            .args(&self.args)
            .current_dir(self.folder())
            .env_clear()
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .unwrap();
        Tidegate { child, setup: self }
    }

    /// Starts it, and waits until it is ready.
    pub(crate) fn start(self) -> Tidegate {
        let mut tidegate = self.spawn();
        tidegate.wait_until_ready();
        tidegate
    }

    /// Runs it to its end.
    pub(crate) fn run(self) -> Ended {
        self.spawn().wait(SOON)
    }
}

/// A running process; killed when dropped.
pub(crate) struct Tidegate {
    child: Child,
    setup: Setup,
}

/// What is left of a process that ended.
pub(crate) struct Ended {
    /// `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    /// All it printed, logs included.
    pub(crate) output: String,
    pub(crate) stdout: String,
    setup: Setup,
}

impl Tidegate {
    pub(crate) fn addr(&self) -> SocketAddr {
        self.setup.addr()
    }

    pub(crate) fn ops_addr(&self) -> SocketAddr {
        self.setup.ports[1].addr()
    }

    pub(crate) fn grpc_addr(&self) -> SocketAddr {
        self.setup.ports[2].addr()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything it has printed so far, logs included.
    pub(crate) fn output(&self) -> String {
        ["stderr", "stdout"].map(|name| read(&self.setup, name)).concat()
    }

    /// Another command of the binary, with this one's environment and data.
    pub(crate) fn command(&self, args: &[&str]) -> Setup {
        let mut command = Setup::command(args);
        command.variables.clone_from(&self.setup.variables);
        command.env("TIDEGATE__SERVER__DATA_DIR", self.data_dir().to_str().unwrap())
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.setup.folder().join("data")
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        Call::get(path).to(self.addr())
    }

    /// Who did what to what, the first first; in dev mode.
    pub(crate) fn audit(&self) -> Vec<String> {
        let page = Call::get("/admin/audit").to(self.addr()).expect(200);
        let words = |entry: &Value| ["actor", "action", "target"].map(|name| entry[name].as_str().unwrap()).join(" ");
        page["data"].as_array().unwrap().iter().rev().map(words).collect()
    }

    /// A gauge or counter; without its labels, the sum over all of them. `None` before it is first set.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let page = Call::get("/metrics").to(self.ops_addr()).body;
        let value = |line: &str| -> Option<f64> {
            let rest = line.strip_prefix(name).filter(|rest| rest.starts_with([' ', '{']))?;
            rest.rsplit(' ').next()?.parse().ok()
        };
        page.lines().filter_map(value).reduce(|sum, value| sum + value)
    }

    pub(crate) fn wait_until_ready(&mut self) {
        let ended = try_wait_until(STARTED, "tidegate to be ready", || {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(Some(status));
            }
            let answer = Call::get("/health/ready").try_to(self.addr());
            answer.is_ok_and(|response| response.status == 200).then_some(None)
        });
        match ended {
            Ok(None) => (),
            Ok(Some(status)) => panic!("tidegate ended with {status}: {}", self.output()),
            Err(timed_out) => panic!("{timed_out}: {}", self.output()),
        }
    }

    /// Waits until nobody listens on the API's address any more.
    pub(crate) fn wait_until_closed(&self) {
        wait_until(SOON, "the listener to close", || std::net::TcpStream::connect(self.addr()).is_err());
    }

    pub(crate) fn terminate(&self) {
        self.signal("TERM");
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.pid().to_string()]).status().unwrap();
        assert!(sent.success(), "the process is gone already: {}", self.output());
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self, limit: Duration) -> Ended {
        let status = try_wait_until(limit, "tidegate to end", || self.child.try_wait().unwrap());
        let output = self.output();
        let status = status.unwrap_or_else(|timed_out| panic!("{timed_out}: {output}"));
        assert_eq!(status.signal(), None, "{output}");
        let setup = self.take_setup();
        Ended { code: status.code(), output, stdout: read(&setup, "stdout"), setup }
    }

    /// Waits until it has died by itself; what is left can be started again.
    pub(crate) fn wait_for_crash(mut self, limit: Duration) -> Setup {
        let status = try_wait_until(limit, "tidegate to die", || self.child.try_wait().unwrap());
        let status = status.unwrap_or_else(|timed_out| panic!("{timed_out}: {}", self.output()));
        assert!(status.signal().is_some(), "{status}: {}", self.output());
        self.take_setup()
    }

    /// `kill -9`; what is left can be started again.
    pub(crate) fn kill(mut self) -> Setup {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.take_setup()
    }

    fn take_setup(&mut self) -> Setup {
        std::mem::replace(&mut self.setup, Setup::command(&[]))
    }

    /// SIGTERM, and its end.
    pub(crate) fn stop(self) -> Ended {
        self.terminate();
        self.wait(SOON)
    }
}

impl Drop for Tidegate {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Ended {
    pub(crate) fn folder(&self) -> &Path {
        self.setup.folder()
    }

    /// The same command with the same folder, ports and environment, to run again.
    pub(crate) fn again(self) -> Setup {
        self.setup
    }

    #[track_caller]
    pub(crate) fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{}", self.output);
        self
    }
}

fn read(setup: &Setup, name: &str) -> String {
    String::from_utf8_lossy(&fs::read(setup.folder().join(name)).unwrap()).into_owned()
}
