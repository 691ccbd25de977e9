//! A server process that lives exactly as long as its owner, and can be stopped, killed and started again.
//!
//! Between owner and server stands a small shell script that holds the read end of a pipe from the owner. Dropping the
//! handle, leaving `main` and `kill -9` of the owner all close the pipe, and then the server and its folder are gone.
//! The supervisor leads a process group of its own, so Ctrl-C in a terminal reaches the owner only.

use std::{
    ffi::OsString,
    fs,
    io::{self, BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::wait::{try_wait_until, wait_until};

/// For a stopped server's threads, on a machine that has much else to do.
const STAND_STILL: Duration = Duration::from_secs(30);
const SUPERVISOR: &str = include_str!("supervisor.sh");

/// What to run, and for whom.
#[derive(Debug)]
pub struct Plan {
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// Working folder, log and data; removed in the end.
    pub folder: PathBuf,
    /// User and group to run as, where the server refuses to run as root.
    pub user: Option<(u32, u32)>,
    /// How to end it: `KILL`, unless the server must tidy up outside its folder.
    pub last_signal: &'static str,
}

#[derive(Debug)]
pub struct Process {
    folder: PathBuf,
    line: Mutex<Line>,
}

/// The two pipes to the supervisor. `commands` is taken on drop, because closing it is the order to end.
#[derive(Debug)]
struct Line {
    supervisor: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    pid: Option<u32>,
}

impl Process {
    pub fn start(plan: Plan) -> io::Result<Process> {
        // A file, not an argument: process listings stay readable.
        let script = plan.folder.join("supervisor.sh");
        fs::write(&script, SUPERVISOR)?;
        let mut command = Command::new("sh");
        command.arg(&script);
        command
            .arg(&plan.folder)
            .arg(plan.folder.join("log"))
            .arg(plan.last_signal)
            .arg(&plan.program)
            .args(&plan.args);
        command.current_dir(&plan.folder).env("LC_ALL", "C").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        if let Some((user, group)) = plan.user {
            command.uid(user).gid(group);
        }
        let mut supervisor = command.spawn()?;
        let commands = supervisor.stdin.take();
        let answers = supervisor.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let line = Line { supervisor, commands, answers: BufReader::new(answers), pid: None };
        let process = Process { folder: plan.folder, line: Mutex::new(line) };
        process.line().start()?;
        Ok(process)
    }

    /// The server's own pid, not the supervisor's. None between `kill` and `start_again`.
    pub fn pid(&self) -> Option<u32> {
        self.line().pid
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Sends a signal by name, without `SIG`.
    pub fn signal(&self, name: &str) -> io::Result<()> {
        self.line().signal(name)
    }

    /// `kill -9`, and waits until the process is gone: connections are reset, new ones refused. Doing it twice is doing it
    /// once.
    pub fn kill(&self) {
        self.end("KILL").expect("the supervisor obeys while its server handle lives");
    }

    /// SIGSTOP: connections stay open and the kernel accepts new ones, but nothing answers once this returns.
    pub fn stop(&self) {
        self.signal("STOP").expect("a running server can be stopped");
        // One thread hears it and tells the others, and that one may have to wait for a processor.
        wait_until(STAND_STILL, "every thread to stand still", || self.stands_still());
    }

    /// SIGCONT, after `stop`.
    pub fn resume(&self) {
        self.signal("CONT").expect("a stopped server can be resumed");
    }

    /// Sends a signal that ends the server, and waits until it is gone.
    pub fn end(&self, signal: &str) -> io::Result<()> {
        let mut line = self.line();
        let Some(pid) = line.pid else { return Ok(()) };
        // One that ended by itself hears nothing.
        if is_alive(pid) {
            line.signal(signal)?;
        }
        line.reap()
    }

    /// The same command in the same folder; ends a server that still runs.
    pub fn start_again(&self) -> io::Result<()> {
        self.end("KILL")?;
        self.line().start()
    }

    /// False once the process has ended by itself, or was killed by somebody else.
    pub fn is_running(&self) -> bool {
        self.pid().is_some_and(is_alive)
    }

    /// PostgreSQL serves each client by a child of its own.
    pub fn children(&self) -> Vec<u32> {
        let Some(pid) = self.pid() else { return Vec::new() };
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        children.split_whitespace().filter_map(|child| child.parse().ok()).collect()
    }

    fn stands_still(&self) -> bool {
        let Some(pid) = self.pid() else { return true };
        self.children().into_iter().chain([pid]).all(|process| {
            let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
            threads
                .map(|thread| state(&thread.path().join("stat")))
                .all(|state| !matches!(state, Some('R' | 'S' | 'D')))
        })
    }

    /// Waits until `is_ready`; a server that ends or is silent for too long is an error that quotes its last words.
    pub fn wait_until_ready(&self, limit: Duration, mut is_ready: impl FnMut() -> bool) -> io::Result<()> {
        let answered = try_wait_until(limit, "an answer", || match is_ready() {
            true => Some(true),
            false if self.is_running() => None,
            false => Some(false),
        });
        match answered {
            Ok(true) => Ok(()),
            Ok(false) => Err(io::Error::other(format!("it ended right after the start: {}", self.last_words()))),
            Err(timed_out) => Err(io::Error::other(format!("{timed_out}: {}", self.last_words()))),
        }
    }

    /// The end of the server's log.
    pub fn last_words(&self) -> String {
        last_words(&self.folder.join("log"))
    }

    /// A test that panicked while it held the line must not hide its own message behind a poisoned lock.
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_alive(pid: u32) -> bool {
    !matches!(state(Path::new(&format!("/proc/{pid}/stat"))), None | Some('Z' | 'X'))
}

/// Of a process or a thread. It follows the command, which stands in parentheses and may contain some.
fn state(stat: &Path) -> Option<char> {
    let stat = fs::read_to_string(stat).ok()?;
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
}

pub(crate) fn last_words(log: &Path) -> String {
    let log = fs::read(log).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(5)..].join(" | ")
}

impl Line {
    fn start(&mut self) -> io::Result<()> {
        let answer = self.ask("start")?;
        self.pid = Some(answer.parse().map_err(io::Error::other)?);
        Ok(())
    }

    fn signal(&mut self, name: &str) -> io::Result<()> {
        match self.ask(name)?.as_str() {
            "0" => Ok(()),
            _ => Err(io::Error::other(format!("the server could not be sent {name}"))),
        }
    }

    fn reap(&mut self) -> io::Result<()> {
        self.ask("reap")?;
        self.pid = None;
        Ok(())
    }

    fn ask(&mut self, word: &str) -> io::Result<String> {
        let commands = self.commands.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(commands, "{word}")?;
        let mut answer = String::new();
        if self.answers.read_line(&mut answer)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(answer.trim().to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let mut line = self.line();
        drop(line.commands.take());
        // The supervisor is our own child and ends by itself; there is nothing to do about a failure to wait for it.
        drop(line.supervisor.wait());
    }
}
