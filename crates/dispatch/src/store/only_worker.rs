//! A SQLite file serves one worker process, so whoever starts on it may take back at once what the last one held.
//!
//! The lock is the kernel's: it ends with the process, however that ends, and its file stays behind empty.

use std::{
    fs::{File, OpenOptions, TryLockError},
    os::unix::fs::OpenOptionsExt,
};

use platform::db::{self, Database, sqlite::Sqlite};

use super::{Store, flights::ALL};
use crate::error::Error;

/// Held for as long as the worker lives. PostgreSQL needs none: there leases end by themselves.
pub struct OnlyWorker {
    _file: Option<File>,
}

impl Store {
    /// Makes this process the one that delivers, and frees what a worker that died still held.
    pub async fn begin_work(&self) -> Result<OnlyWorker, Error> {
        let Database::Sqlite(sqlite) = &self.database else { return Ok(OnlyWorker { _file: None }) };
        let file = lock(sqlite)?;
        self.land_some(ALL).await?;
        let freed = sqlite.write(|connection| connection.execute(include_str!("sqlite/free_leases.sql"), [])).await?;
        sqlite.write(|connection| connection.execute(include_str!("sqlite/free_jobs.sql"), [])).await?;
        if freed > 0 {
            tracing::info!(freed, "Deliveries of a worker that died are due again.");
        }
        Ok(OnlyWorker { _file: Some(file) })
    }
}

fn lock(sqlite: &Sqlite) -> Result<File, Error> {
    let path = sqlite.path().with_extension("worker.lock");
    let open = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = open.map_err(|error| db::Error::Open(path.clone(), error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::SecondWorker(sqlite.path().to_owned())),
        Err(TryLockError::Error(error)) => Err(db::Error::Open(path, error).into()),
    }
}
