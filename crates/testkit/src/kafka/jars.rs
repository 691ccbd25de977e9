//! Apache's own broker, as Maven artefacts in a cache folder outside the source tree, and the Java to run it.
//!
//! Fetched once; afterwards nothing needs the network. The folder appears in one rename when it is complete, and a lock
//! lets one process fetch while others wait. A lock file's holder may die: the system lets go of it.

use std::{
    env,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use crate::{find, ledger::say};

pub const VERSION: &str = "4.3.1";
const POM: &str = include_str!("pom.xml");
const OLDEST_JAVA: u32 = 17;

/// The folder of jars; fetches them when they are not there yet.
pub fn fetch() -> Result<PathBuf, String> {
    let cache = cache()?;
    let jars = cache.join(format!("kafka-{VERSION}"));
    if jars.is_dir() {
        return Ok(jars);
    }
    let because = |error: io::Error| format!("the cache folder {} cannot be used: {error}", cache.display());
    fs::create_dir_all(&cache).map_err(because)?;
    let lock = File::create(cache.join(format!("kafka-{VERSION}.lock"))).map_err(because)?;
    lock.lock().map_err(because)?;
    if jars.is_dir() {
        return Ok(jars);
    }
    // Only the holder of the lock fetches: what lies here is left from one who was killed.
    let unfinished = cache.join(format!("kafka-{VERSION}.unfinished"));
    drop(fs::remove_dir_all(&unfinished));
    fs::create_dir_all(&unfinished).map_err(because)?;
    download(&unfinished)?;
    fs::rename(unfinished.join("jars"), &jars).map_err(because)?;
    drop(fs::remove_dir_all(&unfinished));
    Ok(jars)
}

fn download(folder: &Path) -> Result<(), String> {
    let maven =
        find::program("mvn").ok_or("Kafka is not fetched yet and maven is not installed: apt-get install maven")?;
    let pom = folder.join("pom.xml");
    fs::write(&pom, POM.replace("KAFKA_VERSION", VERSION)).map_err(|error| error.to_string())?;
    say(&format!("testkit: fetching Apache Kafka {VERSION} (55 MB, once, about a minute) into {}", folder.display()));
    let start = Instant::now();
    let mut command = Command::new(maven);
    command
        .args(["-q", "-B", "-Dstyle.color=never", "dependency:copy-dependencies", "-DincludeScope=runtime", "-f"])
        .arg(pom);
    command.arg(format!("-DoutputDirectory={}", folder.join("jars").display()));
    if let Some(home) = env::var_os("HOME") {
        // Java takes the home folder from the user database, which for service users names one that does not exist.
        let mut options = env::var_os("MAVEN_OPTS").unwrap_or_default();
        options.push(" -Duser.home=");
        options.push(home);
        command.env("MAVEN_OPTS", options);
    }
    let done = command.current_dir(folder).stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if !done.status.success() {
        let words = String::from_utf8_lossy(&done.stdout);
        let first = words.lines().find(|line| line.contains("ERROR")).unwrap_or("it said nothing");
        return Err(format!("Maven could not fetch Kafka {VERSION}: {first}"));
    }
    say(&format!("testkit: Kafka fetched in {} s", start.elapsed().as_secs()));
    Ok(())
}

/// Where things that are worth keeping between runs lie.
fn cache() -> Result<PathBuf, String> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("TIDEGATE_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|folder| folder.join("tidegate")))
        .or_else(|| set("HOME").map(|folder| folder.join(".cache/tidegate")))
        .ok_or_else(|| "there is no cache folder: set TIDEGATE_CACHE or HOME".to_owned())
}

/// `JAVA_HOME`'s Java, else the one on the PATH; 17 or newer.
pub(crate) fn java() -> Result<PathBuf, String> {
    let home = env::var_os("JAVA_HOME").map(|home| Path::new(&home).join("bin/java"));
    let java = home.filter(|java| find::is_executable(java)).or_else(|| find::program("java"));
    let java = java.ok_or("java is not installed: apt-get install openjdk-17-jre-headless")?;
    let said = Command::new(&java).arg("-version").output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    match major(&said) {
        Some(version) if version >= OLDEST_JAVA => Ok(java),
        _ => Err(format!(
            "Kafka needs Java {OLDEST_JAVA}: apt-get install openjdk-17-jre-headless (found: {})",
            said.trim()
        )),
    }
}

/// `openjdk version "17.0.15" 2025-04-15` is 17; `"1.8.0_392"` is 1, which is too old as well.
fn major(said: &str) -> Option<u32> {
    let version = said.split('"').nth(1)?;
    version.split(['.', '-', '+']).next()?.parse().ok()
}
