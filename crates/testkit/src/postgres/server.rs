//! One PostgreSQL server of one's own. What it acknowledged is on disk: `fsync` is on.

use std::{
    env,
    ffi::OsString,
    fs, io,
    ops::Deref,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    install,
    wire::{self, Row},
};
use crate::{
    Server as Kind, Unavailable, fresh, ledger,
    port::Port,
    process::{Plan, Process},
};

const READY: Duration = Duration::from_mins(2);

#[derive(Debug)]
pub struct Server {
    // Before the port: the server is gone before its port is free for others.
    process: Process,
    port: Port,
}

/// Its pid, and what can be done to it: `kill`, `stop`, `resume`.
impl Deref for Server {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl Server {
    pub fn start() -> Result<Server, Unavailable> {
        Server::start_with(&[])
    }

    /// `postgres` with these settings added, e.g. `["max_connections=20"]`.
    pub fn start_with(settings: &[&str]) -> Result<Server, Unavailable> {
        Server::start_in(&env::temp_dir(), settings)
    }

    /// With its data below this folder, which is on a disk of one's own.
    pub fn start_in(parent: &Path, settings: &[&str]) -> Result<Server, Unavailable> {
        let server = Server::launch_in(parent, settings)?;
        ledger::used(Kind::PostgreSql);
        Ok(server)
    }

    pub(crate) fn launch(settings: &[&str]) -> Result<Server, Unavailable> {
        Server::launch_in(&env::temp_dir(), settings)
    }

    fn launch_in(parent: &Path, settings: &[&str]) -> Result<Server, Unavailable> {
        let because = |error: io::Error| Unavailable::new(Kind::PostgreSql, error);
        let programs = install::programs().ok_or_else(|| {
            Unavailable::new(Kind::PostgreSql, "postgres is not installed: apt-get install postgresql")
        })?;
        let port = Port::reserve().ok_or_else(|| Unavailable::new(Kind::PostgreSql, "no free port on 127.0.0.1"))?;
        let folder = fresh::folder_in(parent, "postgres").map_err(because)?;
        let user = install::user();
        let data = folder.join("data");
        let made = install::create(&programs, &data, user).and_then(|()| match user {
            Some((user, group)) => chown(&folder, Some(user), Some(group)),
            None => Ok(()),
        });
        if let Err(error) = made {
            drop(fs::remove_dir_all(&folder));
            return Err(because(error));
        }
        let args = arguments(data, port.number(), settings);
        // SIGQUIT: at once and without a checkpoint, but its shared memory is given back.
        let plan = Plan { program: programs.join("postgres"), args, folder, user, last_signal: "QUIT" };
        let server = Server { process: Process::start(plan).map_err(because)?, port };
        server.wait_until_ready().map_err(because)?;
        Ok(server)
    }

    /// The maintenance database. Tests that share a server take `database` instead.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port())
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// `kill -9` if it still runs, then a start on the same port and data; returns when it answers.
    pub fn restart(&self) {
        self.process.start_again().expect("the supervisor obeys while its server handle lives");
        if let Err(error) = self.wait_until_ready() {
            panic!("postgres did not come back: {error}");
        }
    }

    /// One statement in the maintenance database; its rows as text.
    ///
    /// # Panics
    /// When the server does not answer, or refuses the statement.
    pub fn sql(&self, statement: &str) -> Vec<Row> {
        match wire::query(self.port(), "postgres", statement) {
            Ok(rows) => rows,
            Err(error) => panic!("postgres did not run {statement:?}: {error}"),
        }
    }

    fn wait_until_ready(&self) -> io::Result<()> {
        self.process.wait_until_ready(READY, || wire::query(self.port(), "postgres", "SELECT 1").is_ok())
    }
}

pub(crate) fn arguments(data: PathBuf, port: u16, settings: &[&str]) -> Vec<OsString> {
    let port = format!("port={port}");
    let fixed = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=200", &port];
    let settings = fixed.iter().chain(settings).flat_map(|setting| ["-c".into(), OsString::from(setting)]);
    ["-D".into(), data.into()].into_iter().chain(settings).collect()
}
