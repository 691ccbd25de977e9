//! The official Standard Webhooks libraries for Python and JavaScript, fetched once into the cache folder.
//!
//! What cannot be had is an `Unavailable` that says why. Both read calls as a JSON list of objects, `{"secret": "whsec_…", "id": …,
//! "timestamp": …, "signature": …, "body": …}`, all of them text, and answer with a JSON list of verdicts. Neither library knows
//! `v1a`: for `{"public_key": "whpk_…", …}` the ed25519 of Node itself stands in.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{Unavailable, fetch};

const PYTHON_VERSION: &str = "1.1.0";
const JAVASCRIPT_VERSION: &str = "1.1.1";
const PYTHON: &str = "the official Standard Webhooks library for Python";
const JAVASCRIPT: &str = "the official Standard Webhooks library for JavaScript";
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/official");

/// Node trusts the authorities that it was built with; the machine's own may be more, as behind a company's proxy.
const MORE_AUTHORITIES: &str = "NODE_EXTRA_CA_CERTS";
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// What is said of a call that the receiver may trust ..
pub const VERIFIED: &str = "verified";
/// .. and of one whose signatures fit nothing.
pub const NO_MATCH: &str = "No matching signature found";

/// A program that reads calls and answers with a verdict each.
#[derive(Debug)]
pub struct Library {
    program: PathBuf,
    script: &'static str,
    folder: PathBuf,
}

pub fn python() -> Result<Library, Unavailable> {
    let name = format!("standardwebhooks-python-{PYTHON_VERSION}");
    let found = fetch::python(&name, &[&format!("standardwebhooks=={PYTHON_VERSION}")]);
    let folder = found.map_err(|reason| Unavailable::program(PYTHON, reason))?;
    let library = Library { program: folder.join("bin/python"), script: "verify.py", folder };
    library.ready().map_err(|reason| Unavailable::program(PYTHON, reason))
}

pub fn javascript() -> Result<Library, Unavailable> {
    let found = fetch::folder(&format!("standardwebhooks-javascript-{JAVASCRIPT_VERSION}"), |folder| {
        fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        let mut npm = Command::new("npm");
        npm.args([
            "install",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--fetch-timeout=20000",
            "--fetch-retries=1",
            "--fetch-retry-mintimeout=1000",
        ]);
        npm.arg("--prefix").arg(folder).arg(format!("standardwebhooks@{JAVASCRIPT_VERSION}"));
        // Whoever runs the tests may name authorities of their own.
        npm.env(MORE_AUTHORITIES, env::var_os(MORE_AUTHORITIES).unwrap_or_else(|| AUTHORITIES.into()));
        fetch::run(&mut npm, "npm")
    });
    let folder = found.map_err(|reason| Unavailable::program(JAVASCRIPT, reason))?;
    let library = Library { program: "node".into(), script: "verify.js", folder };
    library.ready().map_err(|reason| Unavailable::program(JAVASCRIPT, reason))
}

impl Library {
    /// The verdict on each call, in order: JSON in, JSON out.
    ///
    /// # Panics
    /// When the program fails: it is ready, so that is no lack of the machine.
    pub fn verdicts(&self, calls: &str) -> String {
        self.ask(calls).unwrap_or_else(|problem| panic!("{} failed: {problem}", self.script))
    }

    /// Asks about nothing: a program that is gone or a library that does not load shows here.
    fn ready(self) -> Result<Self, String> {
        match self.ask("[]") {
            Ok(_) => Ok(self),
            Err(problem) => {
                Err(format!("it does not start: {problem}; remove {} to fetch it anew", self.folder.display()))
            }
        }
    }

    fn ask(&self, calls: &str) -> Result<String, String> {
        let mut command = Command::new(&self.program);
        command.arg(Path::new(SCRIPTS).join(self.script)).env("NODE_PATH", self.folder.join("node_modules"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", self.program.display()))?;
        let mut stdin = child.stdin.take().ok_or("it has no stdin")?;
        // It reads all before it writes anything, so neither can wait for the other. One that died says why on stderr.
        drop(stdin.write_all(calls.as_bytes()));
        drop(stdin);
        let done = child.wait_with_output().map_err(|error| error.to_string())?;
        if !done.status.success() {
            return Err(fetch::complaint(&done.stderr));
        }
        String::from_utf8(done.stdout).map_err(|error| error.to_string())
    }
}
