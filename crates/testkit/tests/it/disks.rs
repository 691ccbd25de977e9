//! Disks that are full, or broken, on order.

use std::{
    env, fs,
    io::ErrorKind,
    process::{Command, Stdio},
    time::Duration,
};

use testkit::{
    disk::{Disk, has_own_mounts},
    need, strace, wait_until,
};

const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn a_disk_fills_up_and_has_room_again() {
    if !need!(has_own_mounts()) {
        return;
    }
    let disk = need!(Disk::mount(1));
    let file = disk.folder().join("file");
    disk.fill(100_000);
    fs::write(&file, [1; 90_000]).unwrap();
    disk.fill(0);
    assert_eq!(fs::write(&file, [1; 200_000]).unwrap_err().kind(), ErrorKind::StorageFull);
    disk.make_room();
    fs::write(&file, [1; 200_000]).unwrap();
    let folder = disk.folder().to_owned();
    drop(disk);
    assert!(!folder.exists());
}

#[test]
fn calls_fail_for_as_long_as_they_should() {
    let said = env::temp_dir().join(format!("testkit-it-strace-{}", std::process::id()));
    let script = "while sleep 0.01; do sync \"$0\" && echo good >\"$0\" || echo bad >\"$0\"; done";
    let mut process =
        Command::new("sh").args(["-c", script]).arg(&said).stderr(Stdio::null()).stdin(Stdio::null()).spawn().unwrap();
    let wait_for =
        |word: &str| wait_until(LIMIT, word, || fs::read_to_string(&said).is_ok_and(|said| said.trim() == word));
    wait_for("bad");
    wait_for("good");
    let failing = strace::fail(&[process.id()], "fsync", "error=EIO");
    if failing.is_ok() {
        wait_for("bad");
    }
    let failing = failing.map(drop);
    wait_for("good");
    process.kill().unwrap();
    process.wait().unwrap();
    fs::remove_file(said).unwrap();
    need!(failing);
}
