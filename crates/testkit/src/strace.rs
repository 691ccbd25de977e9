//! System calls of a running process that fail on order, as on a disk that is broken: `strace` answers in the kernel's place.

use std::{
    fs,
    io::Read,
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::{Unavailable, find, wait::try_wait_until};

const ATTACHED: Duration = Duration::from_secs(20);

/// While it lives, calls fail.
#[derive(Debug)]
pub struct Failing(Child);

/// From now on `calls` of these processes fail, as `how` says: `fail(&[pid], "fsync,fdatasync", "error=EIO:when=3")`.
pub fn fail(processes: &[u32], calls: &str, how: &str) -> Result<Failing, Unavailable> {
    let because = |reason: String| Unavailable::program("strace", reason.trim());
    if find::program("strace").is_none() {
        return Err(because("it is not installed: apt-get install strace".to_owned()));
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "strace", "-f", "-qq", "-o", "/dev/null"]);
    command.args(["-e", &format!("trace={calls}"), "-e", &format!("inject={calls}:{how}")]);
    command.args(processes.iter().flat_map(|process| ["-p".to_owned(), process.to_string()]));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut failing = Failing(command.spawn().map_err(|error| because(error.to_string()))?);
    let tracer = format!("TracerPid:\t{}\n", failing.0.id());
    let attached = try_wait_until(ATTACHED, "strace to attach", || match failing.0.try_wait() {
        Ok(None) => processes.iter().all(|process| is_traced(*process, &tracer)).then_some(true),
        _ => Some(false),
    });
    match attached {
        Ok(true) => Ok(failing),
        Ok(false) => {
            let mut reason = String::new();
            if let Some(mut said) = failing.0.stderr.take() {
                drop(said.read_to_string(&mut reason));
            }
            Err(because(reason))
        }
        Err(timed_out) => Err(because(timed_out.to_string())),
    }
}

/// Each of its threads.
fn is_traced(process: u32, tracer: &str) -> bool {
    let mut threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    threads.all(|thread| fs::read_to_string(thread.path().join("status")).is_ok_and(|status| status.contains(tracer)))
}

impl Drop for Failing {
    fn drop(&mut self) {
        // It lets go of whoever still runs, and ends.
        drop(Command::new("kill").args(["-s", "TERM", &self.0.id().to_string()]).stderr(Stdio::null()).status());
        drop(self.0.wait());
    }
}
