//! One Redis server of one's own.

use std::{ffi::OsString, fs, io, ops::Deref, time::Duration};

use crate::{
    Server as Kind, Unavailable, find, fresh, ledger,
    port::Port,
    process::{Plan, Process},
    resp::{self, Reply},
};

const READY: Duration = Duration::from_mins(1);

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
    /// A server without persistence: `restart` brings it back empty.
    pub fn start() -> Result<Server, Unavailable> {
        Server::start_with(&[])
    }

    /// A server that has every acknowledged write on disk: `restart` brings it back with its data.
    pub fn persistent() -> Result<Server, Unavailable> {
        Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// `redis-server` with these arguments added, e.g. `["--maxmemory", "10mb"]`.
    pub fn start_with(args: &[&str]) -> Result<Server, Unavailable> {
        let server = Server::launch(args)?;
        ledger::used(Kind::Redis);
        Ok(server)
    }

    pub(crate) fn launch(args: &[&str]) -> Result<Server, Unavailable> {
        let port = reserve()?;
        let number = port.number().to_string();
        let fixed = ["--port", &number, "--bind", "127.0.0.1", "--save", "", "--daemonize", "no"];
        Server::launch_on(port, None, &[&fixed, args].concat())
    }

    /// A configuration file is for servers that rewrite theirs: it lies in the server's own folder.
    pub(super) fn launch_on(port: Port, config: Option<&str>, args: &[&str]) -> Result<Server, Unavailable> {
        let because = |error: io::Error| Unavailable::new(Kind::Redis, error);
        let program = find::program("redis-server").ok_or_else(|| {
            Unavailable::new(Kind::Redis, "redis-server is not installed: apt-get install redis-server")
        })?;
        let folder = fresh::folder("redis").map_err(because)?;
        let mut args: Vec<OsString> = args.iter().map(OsString::from).collect();
        if let Some(config) = config {
            let file = folder.join("redis.conf");
            fs::write(&file, config).map_err(because)?;
            args.insert(0, file.into());
        }
        let plan = Plan { program, args, folder, user: None, last_signal: "KILL" };
        let server = Server { process: Process::start(plan).map_err(because)?, port };
        server.wait_until_ready().map_err(because)?;
        Ok(server)
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port())
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// `kill -9` if it still runs, then a start on the same port and folder; returns when it answers.
    pub fn restart(&self) {
        self.process.start_again().expect("the supervisor obeys while its server handle lives");
        if let Err(error) = self.wait_until_ready() {
            panic!("redis-server did not come back: {error}");
        }
    }

    /// One command, the reply as `redis-cli` prints it into a pipe.
    ///
    /// # Panics
    /// When the server does not answer, or answers with an error.
    pub fn cli<S: AsRef<str>>(&self, command: &[S]) -> String {
        let words: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
        match self.try_cli(&words) {
            Ok(Reply::Error(error)) => panic!("redis-server answered {words:?} with {error}"),
            Ok(reply) => reply.to_string(),
            Err(error) => panic!("redis-server did not answer {words:?}: {error}"),
        }
    }

    pub fn try_cli<S: AsRef<str>>(&self, command: &[S]) -> io::Result<Reply> {
        resp::ask(self.port(), command)
    }

    fn wait_until_ready(&self) -> io::Result<()> {
        let pong = Reply::Text("PONG".to_owned());
        self.process.wait_until_ready(READY, || self.try_cli(&["PING"]).is_ok_and(|reply| reply == pong))
    }
}

pub(super) fn reserve() -> Result<Port, Unavailable> {
    Port::reserve().ok_or_else(|| Unavailable::new(Kind::Redis, "no free port on 127.0.0.1"))
}
