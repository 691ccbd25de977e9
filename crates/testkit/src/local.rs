//! Servers for local work: on fixed ports, with data that stays, and alive after the command that started them.
//!
//! One folder holds everything: data, logs and a pid file per server. A pid counts only while that process still works
//! in the server's own folder, so a number that was given to another program is never signalled.

use std::{
    collections::hash_map::DefaultHasher,
    ffi::OsString,
    fs::{self, File},
    hash::{Hash, Hasher},
    io,
    net::{Ipv4Addr, TcpListener},
    os::unix::{
        fs::{MetadataExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::{
    Server, Unavailable, find,
    kafka::{Kafka, Node, Settings, wire as kafka_wire},
    postgres::{arguments, install, wire as postgres_wire},
    process::last_words,
    resp::{self, Reply},
    wait::try_wait_until,
};

const READY: Duration = Duration::from_secs(90);
/// PostgreSQL and Kafka finish their writes first.
const STOPPED: Duration = Duration::from_secs(30);

/// One server's fixed place.
#[derive(Clone, Debug)]
pub struct Local {
    pub server: Server,
    pub port: u16,
    /// Shared by all servers of this place.
    pub folder: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Started {
    Now,
    Already,
}

impl Local {
    /// Starts the server unless it runs, and returns when it answers.
    pub fn up(&self) -> Result<Started, Unavailable> {
        let because = |error: io::Error| Unavailable::new(self.server, error);
        if self.pid().is_some() {
            self.wait_until_ready(|| self.pid().is_none()).map_err(because)?;
            return Ok(Started::Already);
        }
        if let Err(error) = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)) {
            let port = self.port;
            return Err(Unavailable::new(self.server, format!("port {port} is taken by another program: {error}")));
        }
        let home = self.home();
        fs::create_dir_all(&home).and_then(|()| fs::create_dir_all(&self.folder)).map_err(because)?;
        let (program, args) = self.command(&home)?;
        let mut process = self.spawn(&home, program, args).map_err(because)?;
        fs::write(self.pid_file(), process.id().to_string()).map_err(because)?;
        // Ours to ask, whatever may be read of it in these moments.
        self.wait_until_ready(|| process.try_wait().is_ok_and(|ended| ended.is_some())).map_err(because)?;
        Ok(Started::Now)
    }

    /// Stops the server; false where it was not running. `wipe` removes what it kept.
    pub fn down(&self, wipe: bool) -> io::Result<bool> {
        let running = self.pid();
        if let Some(pid) = running {
            // PostgreSQL waits for its clients on SIGTERM, but not on SIGINT.
            let signal = if self.server == Server::PostgreSql { "INT" } else { "TERM" };
            kill(signal, pid)?;
            if try_wait_until(STOPPED, "its end", || self.pid().is_none().then_some(())).is_err() {
                kill("KILL", pid)?;
                try_wait_until(STOPPED, "its end", || self.pid().is_none().then_some(())).map_err(io::Error::other)?;
            }
        }
        let mut removed: Vec<io::Result<()>> = vec![fs::remove_file(self.pid_file())];
        if wipe {
            removed.extend([fs::remove_dir_all(self.home()), fs::remove_file(self.log_file())]);
        }
        for result in removed {
            match result {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => (),
            }
        }
        Ok(running.is_some())
    }

    /// The line to put into a shell.
    pub fn export(&self) -> String {
        let address = format!("127.0.0.1:{}", self.port);
        match self.server {
            Server::Redis => format!("export REDIS_URL=redis://{address}/"),
            Server::PostgreSql => format!("export DATABASE_URL=postgres://postgres@{address}/postgres"),
            Server::Kafka => format!("export KAFKA_BROKERS={address}"),
        }
    }

    fn name(&self) -> String {
        self.server.name().to_lowercase()
    }

    fn pid_file(&self) -> PathBuf {
        self.folder.join(self.name() + ".pid")
    }

    fn log_file(&self) -> PathBuf {
        self.folder.join(self.name() + ".log")
    }

    /// Where the server works and keeps its data.
    fn home(&self) -> PathBuf {
        let home = self.folder.join(self.name());
        match self.server {
            Server::PostgreSql => reachable_for_its_user(home),
            _ => home,
        }
    }

    fn pid(&self) -> Option<u32> {
        let pid: u32 = fs::read_to_string(self.pid_file()).ok()?.trim().parse().ok()?;
        let works_in = fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
        let home = self.home().canonicalize().ok()?;
        works_in.starts_with(home).then_some(pid)
    }

    fn command(&self, home: &Path) -> Result<(PathBuf, Vec<OsString>), Unavailable> {
        let because = |reason: String| Unavailable::new(self.server, reason);
        let port = self.port.to_string();
        match self.server {
            Server::Redis => {
                let missing = || because("redis-server is not installed: apt-get install redis-server".into());
                let program = find::program("redis-server").ok_or_else(missing)?;
                let args = ["--port", &port, "--bind", "127.0.0.1", "--appendonly", "yes", "--daemonize", "no"];
                Ok((program, args.map(OsString::from).to_vec()))
            }
            Server::PostgreSql => {
                let missing = || because("postgres is not installed: apt-get install postgresql".into());
                let programs = install::programs().ok_or_else(missing)?;
                let data = home.join("data");
                if !data.join("PG_VERSION").exists() {
                    install::create(&programs, &data, install::user()).map_err(|error| because(error.to_string()))?;
                }
                Ok((programs.join("postgres"), arguments(data, self.port, &[])))
            }
            Server::Kafka => {
                let kafka = Kafka::find().map_err(because)?;
                let controller_port = self.port + 1;
                let data = home.join("data");
                let node =
                    Node { id: 1, client_port: self.port, controller_port, voters: &[controller_port], data: &data };
                kafka.format(home, &node, &Settings::default()).map_err(|error| because(error.to_string()))?;
                Ok((kafka.program(), kafka.arguments(home, &Settings::default())))
            }
        }
    }

    /// Not waited for: the server shall outlive this command, which ends soon.
    fn spawn(&self, home: &Path, program: PathBuf, args: Vec<OsString>) -> io::Result<Child> {
        let log = File::create(self.log_file())?;
        let mut command = Command::new(program);
        command.args(args).current_dir(home).env("LC_ALL", "C").process_group(0);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        if self.server == Server::PostgreSql
            && let Some((user, group)) = install::user()
        {
            chown(home, Some(user), Some(group))?;
            command.uid(user).gid(group);
        }
        command.spawn()
    }

    fn wait_until_ready(&self, mut has_ended: impl FnMut() -> bool) -> io::Result<()> {
        let mut ended = || has_ended().then_some(false);
        let answered = try_wait_until(READY, "an answer", || self.answers().then_some(true).or_else(&mut ended));
        let trouble = match answered {
            Ok(true) => return Ok(()),
            Ok(false) => "it ended".to_owned(),
            Err(timed_out) => timed_out.to_string(),
        };
        let log = self.log_file();
        Err(io::Error::other(format!("{trouble}; {} ends with: {}", log.display(), last_words(&log))))
    }

    fn answers(&self) -> bool {
        match self.server {
            Server::Redis => resp::ask(self.port, &["PING"]).is_ok_and(|reply| reply == Reply::Text("PONG".into())),
            Server::PostgreSql => postgres_wire::query(self.port, "postgres", "SELECT 1").is_ok(),
            Server::Kafka => kafka_wire::metadata(self.port, None).is_ok_and(|known| known.brokers > 0),
        }
    }
}

fn kill(signal: &str, pid: u32) -> io::Result<()> {
    Command::new("kill").args(["-s", signal, &pid.to_string()]).status().map(drop)
}

/// A folder under root's home is closed to the user PostgreSQL runs as; then its data lies elsewhere, always the same.
fn reachable_for_its_user(home: PathBuf) -> PathBuf {
    let Some((user, _)) = install::user() else { return home };
    let is_open =
        |folder: &Path| fs::metadata(folder).map_or(true, |found| found.mode() & 0o001 != 0 || found.uid() == user);
    if std::path::absolute(&home).unwrap_or_else(|_| home.clone()).ancestors().skip(1).all(is_open) {
        return home;
    }
    let mut hasher = DefaultHasher::new();
    std::path::absolute(&home).ok().hash(&mut hasher);
    Path::new("/var/tmp").join(format!("tidegate-postgres-{:016x}", hasher.finish()))
}
