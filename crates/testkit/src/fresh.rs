//! Names nobody else has: across threads, processes and runs.

use std::{
    env, fs,
    hash::{BuildHasher, RandomState},
    io,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// Random enough to be unique: std seeds its hasher from the operating system.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(process::id())
}

/// A short lower-case word starting with a letter: fit for a key prefix, a schema and a topic.
pub(crate) fn word() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("t{:08x}{number:x}", random() >> 32)
}

/// A new empty folder under the system's temporary folder; whoever asks removes it.
pub(crate) fn folder(kind: &str) -> io::Result<PathBuf> {
    folder_in(&env::temp_dir(), kind)
}

/// The same in another folder.
pub(crate) fn folder_in(parent: &Path, kind: &str) -> io::Result<PathBuf> {
    let path = parent.join(format!("testkit-{kind}-{}-{}", process::id(), word()));
    fs::create_dir_all(&path)?;
    Ok(path)
}
