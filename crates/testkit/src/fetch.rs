//! Other languages' libraries, fetched once into the cache folder.
//!
//! A folder appears in one rename when it is complete, and a lock lets one process fetch while others wait. Afterwards
//! nothing needs the network.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A Python with these packages, each as `name==version`: the folder of its environment, with `bin/python` in it.
pub fn python(name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    folder(name, |folder| {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder), "python3-venv")?;
        let mut pip = Command::new(folder.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        pip.args(["--timeout", "20", "--retries", "1"]).args(packages);
        run(&mut pip, "python3-venv")
    })
}

/// The folder of this name in the cache; `fetch` fills it when it is not there yet.
pub fn folder(name: &str, fetch: impl FnOnce(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
    let cache = cache().ok_or("there is no cache folder: set TIDEGATE_CACHE or HOME")?;
    let folder = cache.join(name);
    if folder.is_dir() {
        return Ok(folder);
    }
    let because = |error: io::Error| format!("the cache folder {} cannot be used: {error}", cache.display());
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

/// Runs it to its end; a failure says what `package` would mend it.
pub fn run(command: &mut Command, package: &str) -> Result<(), String> {
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
pub fn complaint(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let line = text.lines().find(|line| line.contains("rror")).or_else(|| text.trim_end().lines().next_back());
    line.map_or("it said nothing", str::trim).to_owned()
}
