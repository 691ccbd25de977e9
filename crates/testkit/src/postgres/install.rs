//! Finds PostgreSQL's programs and the user to run them as, and makes a new data folder.

use std::{
    fs, io,
    os::unix::{
        fs::{MetadataExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::find;

/// Debian keeps the server's programs out of the PATH, in a folder per version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The folder that holds both `initdb` and `postgres`; the newest version where there are several.
pub(crate) fn programs() -> Option<PathBuf> {
    let on_path = find::program("initdb").and_then(|file| file.parent().map(Path::to_owned));
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir(DEBIAN)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort();
    let installed = versions.into_iter().rev().map(|(_, folder)| folder);
    on_path
        .into_iter()
        .chain(installed)
        .find(|folder| ["initdb", "postgres"].iter().all(|name| find::is_executable(&folder.join(name))))
}

/// PostgreSQL refuses to run as root; then it runs as the user its package made, else as nobody.
pub(crate) fn user() -> Option<(u32, u32)> {
    let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    let known = fs::read_to_string("/etc/passwd").unwrap_or_default();
    is_root.then(|| ["postgres", "nobody"].iter().find_map(|name| ids_of(name, &known))).flatten()
}

fn ids_of(name: &str, passwd: &str) -> Option<(u32, u32)> {
    let fields = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = fields.into_iter().find(|fields| fields.len() > 3 && fields[0] == name)?;
    Some((found[2].parse().ok()?, found[3].parse().ok()?))
}

/// `initdb` into `data`, owned by the user who will run the server.
pub(crate) fn create(programs: &Path, data: &Path, user: Option<(u32, u32)>) -> io::Result<()> {
    fs::create_dir_all(data)?;
    let mut initdb = Command::new(programs.join("initdb"));
    initdb.arg("-D").arg(data).args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]);
    initdb.args(["--no-sync", "--no-instructions"]).current_dir(data).stdin(Stdio::null());
    if let Some((user, group)) = user {
        chown(data, Some(user), Some(group))?;
        initdb.uid(user).gid(group);
    }
    let done = initdb.output()?;
    if done.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&done.stderr);
    Err(io::Error::other(format!("initdb failed: {}", words.trim().replace('\n', " | "))))
}
