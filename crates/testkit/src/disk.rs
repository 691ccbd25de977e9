//! A small disk of a test's own, to fill up and to make room on again.
//!
//! It is a tmpfs in a mount namespace: nobody else sees it, and it is gone with its process, however that ends. A test that
//! wants one runs again, in a process with such a namespace.

use std::{
    env,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use crate::{Unavailable, fresh};

const MARK: &str = "TESTKIT_HAS_OWN_MOUNTS";
const NAMESPACE: &str = "a mount namespace";

/// True where only this process sees what it mounts. Elsewhere the test runs again where it does, and this is false.
///
/// # Panics
/// When the test fails there.
pub fn has_own_mounts() -> Result<bool, Unavailable> {
    if env::var_os(MARK).is_some() {
        return Ok(true);
    }
    let because = |reason: &dyn std::fmt::Display| Unavailable::program(NAMESPACE, reason);
    let test = thread::current().name().unwrap_or_default().to_owned();
    let own = env::current_exe().map_err(|error| because(&error))?;
    let mut command = Command::new("unshare");
    // Who is root stays it: servers that are not to run as root could not become anybody else.
    if !fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
        command.arg("--map-root-user");
    }
    command.args(["--mount", "setpriv", "--pdeathsig", "KILL", "--"]).arg(own);
    command.args(["--exact", &test, "--nocapture"]).env(MARK, "1").stdin(Stdio::null());
    let output = command.output().map_err(|error| because(&error))?;
    let [said, failed] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    if !said.contains("running ") {
        return Err(because(&failed.trim()));
    }
    #[expect(clippy::print_stdout, reason = "what the test said there belongs to its output")]
    {
        println!("{said}{failed}");
    }
    assert!(output.status.success() && said.contains("1 passed"), "{test} failed in its own process");
    Ok(false)
}

/// A mounted disk. Unmounted when dropped.
#[derive(Debug)]
pub struct Disk {
    folder: PathBuf,
}

impl Disk {
    /// Of so many MiB, for every user.
    pub fn mount(mib: usize) -> Result<Disk, Unavailable> {
        let because = |reason: &dyn std::fmt::Display| Unavailable::program(NAMESPACE, reason);
        let disk = Disk { folder: fresh::folder("disk").map_err(|error| because(&error))? };
        let options = format!("size={mib}m,mode=1777");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&disk.folder);
        let mounted = mount.output().map_err(|error| because(&error))?;
        if !mounted.status.success() {
            return Err(because(&String::from_utf8_lossy(&mounted.stderr).trim()));
        }
        Ok(disk)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Takes all the room there is but so many bytes.
    ///
    /// # Panics
    /// When the disk does not fill up.
    pub fn fill(&self, left: u64) {
        self.try_fill(left).expect("a disk fills up");
    }

    fn try_fill(&self, left: u64) -> io::Result<()> {
        let mut filler = File::options().append(true).create(true).open(self.filler())?;
        let piece = [1; 1 << 16];
        loop {
            match filler.write(&piece) {
                Ok(_) => (),
                Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
                Err(error) => return Err(error),
            }
        }
        filler.set_len(filler.metadata()?.len().saturating_sub(left))
    }

    /// Gives back what `fill` took.
    pub fn make_room(&self) {
        drop(fs::remove_file(self.filler()));
    }

    fn filler(&self) -> PathBuf {
        self.folder.join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Whoever still writes there keeps it until the end.
        drop(Command::new("umount").arg("--lazy").arg(&self.folder).status());
        drop(fs::remove_dir(&self.folder));
    }
}
