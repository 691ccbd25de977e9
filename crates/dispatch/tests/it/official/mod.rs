//! The official Standard Webhooks libraries for Python and JavaScript, fetched once into the cache folder.
//!
//! A folder appears in one rename when it is complete, and a lock lets one process fetch while others wait. Afterwards
//! nothing needs the network. What cannot be had is an `Unavailable` that says why.
#![expect(clippy::disallowed_methods, reason = "the cache folder is named by the environment")]

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use testkit::Unavailable;

const PYTHON_VERSION: &str = "1.1.0";
const JAVASCRIPT_VERSION: &str = "1.1.1";
const PYTHON: &str = "the official Standard Webhooks library for Python";
const JAVASCRIPT: &str = "the official Standard Webhooks library for JavaScript";
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/official");

/// A program that reads calls as JSON and answers with a verdict each.
pub(crate) struct Library {
    program: PathBuf,
    script: &'static str,
    folder: PathBuf,
}

pub(crate) fn python() -> Result<Library, Unavailable> {
    let found = fetched(&format!("standardwebhooks-python-{PYTHON_VERSION}"), |folder| {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder), "python3-venv")?;
        let mut pip = Command::new(folder.join("bin/python"));
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--timeout",
            "20",
            "--retries",
            "1",
        ]);
        run(pip.arg(format!("standardwebhooks=={PYTHON_VERSION}")), "python3-venv")
    });
    let folder = found.map_err(|reason| Unavailable::program(PYTHON, reason))?;
    let library = Library { program: folder.join("bin/python"), script: "verify.py", folder };
    library.ready().map_err(|reason| Unavailable::program(PYTHON, reason))
}

pub(crate) fn javascript() -> Result<Library, Unavailable> {
    let found = fetched(&format!("standardwebhooks-javascript-{JAVASCRIPT_VERSION}"), |folder| {
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
        run(&mut npm, "npm")
    });
    let folder = found.map_err(|reason| Unavailable::program(JAVASCRIPT, reason))?;
    let library = Library { program: "node".into(), script: "verify.js", folder };
    library.ready().map_err(|reason| Unavailable::program(JAVASCRIPT, reason))
}

impl Library {
    /// The verdict on each call, in order.
    ///
    /// # Panics
    /// When the program fails: it is ready, so that is no lack of the machine.
    pub(crate) fn verdicts(&self, calls: &[serde_json::Value]) -> Vec<String> {
        self.ask(calls).unwrap_or_else(|problem| panic!("{} failed: {problem}", self.script))
    }

    /// Asks about nothing: a program that is gone or a library that does not load shows here.
    fn ready(self) -> Result<Self, String> {
        match self.ask(&[]) {
            Ok(_) => Ok(self),
            Err(problem) => {
                Err(format!("it does not start: {problem}; remove {} to fetch it anew", self.folder.display()))
            }
        }
    }

    fn ask(&self, calls: &[serde_json::Value]) -> Result<Vec<String>, String> {
        let mut command = Command::new(&self.program);
        command.arg(Path::new(SCRIPTS).join(self.script)).env("NODE_PATH", self.folder.join("node_modules"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", self.program.display()))?;
        let input = serde_json::to_vec(calls).map_err(|error| error.to_string())?;
        let mut stdin = child.stdin.take().ok_or("it has no stdin")?;
        // It reads all before it writes anything, so neither can wait for the other. One that died says why on stderr.
        drop(stdin.write_all(&input));
        drop(stdin);
        let done = child.wait_with_output().map_err(|error| error.to_string())?;
        if !done.status.success() {
            return Err(complaint(&done.stderr));
        }
        serde_json::from_slice(&done.stdout).map_err(|error| error.to_string())
    }
}

/// The folder of this name in the cache; `fetch` fills it when it is not there yet.
fn fetched(name: &str, fetch: impl FnOnce(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
    let cache = cache().ok_or("there is no cache folder: set TIDEGATE_CACHE or HOME")?;
    let folder = cache.join(name);
    if folder.is_dir() {
        return Ok(folder);
    }
    let because = |error: std::io::Error| format!("the cache folder {} cannot be used: {error}", cache.display());
    fs::create_dir_all(&cache).map_err(because)?;
    let lock = fs::File::create(cache.join(format!("{name}.lock"))).map_err(because)?;
    lock.lock().map_err(because)?;
    if folder.is_dir() {
        return Ok(folder);
    }
    // Only the holder of the lock fetches: what lies here is left from one who was killed.
    let unfinished = cache.join(format!("{name}.unfinished"));
    drop(fs::remove_dir_all(&unfinished));
    fetch(&unfinished)?;
    fs::rename(&unfinished, &folder).map_err(because)?;
    Ok(folder)
}

fn cache() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("TIDEGATE_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|folder| folder.join("tidegate")))
        .or_else(|| set("HOME").map(|folder| folder.join(".cache/tidegate")))
}

fn run(command: &mut Command, package: &str) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output();
    let done = done.map_err(|error| format!("{program} cannot run ({error}): apt-get install {package}"))?;
    if done.status.success() {
        return Ok(());
    }
    // Debian's venv explains on stdout what is missing.
    let said = if done.stderr.trim_ascii().is_empty() { done.stdout } else { done.stderr };
    Err(format!("{program} failed: {}", complaint(&said)))
}

/// The line that says what is wrong: the first that speaks of an error, else the last.
fn complaint(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let line = text.lines().find(|line| line.contains("rror")).or_else(|| text.trim_end().lines().next_back());
    line.map_or("it said nothing", str::trim).to_owned()
}
