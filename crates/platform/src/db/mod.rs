//! The database of record: SQLite in the data folder by default, PostgreSQL when `database.url` says so.
//!
//! Callers match on [`Database`] and run the same query, written in each dialect, from `.sql` files beside them; one
//! contract suite runs on both. Time in rows is the database's own clock.

mod migrate;
pub mod postgres;
mod query;
pub mod sqlite;

#[cfg(test)]
mod tests;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::http::StatusCode;
use serde::Deserialize;
use tokio_postgres::error::{DbError, SqlState};

pub use self::{
    migrate::{Applied, Migrations, Schema},
    query::{Query, Row, Step, Value},
};
use self::{postgres::Postgres, sqlite::Sqlite};
use crate::{config::Invalid, problem::Problem, secret::Secret};

/// The section `[database]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub url: Secret,
    pub pool_size: usize,
    pub ca_file: String,
}

#[derive(Clone, Debug)]
pub enum Config {
    Sqlite(PathBuf),
    Postgres(Box<postgres::Config>),
}

impl Config {
    pub fn new(file: &File, data_dir: &Path) -> Result<Self, Invalid> {
        let key = "database.url";
        let url = file.url.expose();
        match url.split_once(':') {
            None if url.is_empty() => Ok(Config::Sqlite(data_dir.join("tidegate.db"))),
            Some(("sqlite", path)) if !path.is_empty() => Ok(Config::Sqlite(PathBuf::from(path))),
            Some(("postgres" | "postgresql", _)) => {
                postgres::Config::new(file).map(|config| Config::Postgres(Box::new(config)))
            }
            // The URL itself may hold a password, so only its scheme is named.
            scheme => Err(Invalid::new(
                key,
                format!(
                    "{:?} is not a database this version speaks: write \"postgres://user:password@host:5432/name\", or leave it empty for SQLite",
                    scheme.map_or("", |(scheme, _)| scheme),
                ),
            )),
        }
    }
}

/// An open database. Cheap to clone.
#[derive(Clone)]
pub enum Database {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

impl Database {
    /// Connects, and fails within seconds if the database does not answer.
    pub async fn connect(config: &Config) -> Result<Self, Error> {
        match config {
            Config::Sqlite(path) => Sqlite::open(path).map(Database::Sqlite),
            Config::Postgres(config) => Postgres::connect(config).await.map(Database::Postgres),
        }
    }

    /// Does the schema hold what this version needs?
    pub async fn schema(&self, sets: &[Migrations]) -> Result<Schema, Error> {
        migrate::schema(self, sets).await
    }

    /// Brings the schema up to date. Any number of replicas may do this at once: one works, the others wait. Needs no
    /// right to change it where there is nothing to do.
    pub async fn migrate(&self, sets: &[Migrations]) -> Result<Vec<Applied>, Error> {
        migrate::run(self, sets).await
    }

    /// Does it answer, and does SQLite take writes?
    pub async fn ping(&self) -> Result<(), Error> {
        match self {
            Database::Sqlite(sqlite) => sqlite.ping().await,
            Database::Postgres(postgres) => postgres.ping().await,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("SQLite failed")]
    Sqlite(#[from] rusqlite::Error),
    #[error("SQLite could not commit")]
    Commit(#[source] Arc<rusqlite::Error>),
    #[error("another write of the same commit failed, and this one was undone with it")]
    GroupUndone,
    #[error("SQLite's file {0} could not be opened")]
    Open(PathBuf, #[source] std::io::Error),
    #[error("SQLite's writer is gone")]
    Closed,
    #[error("PostgreSQL failed")]
    Postgres(#[from] tokio_postgres::Error),
    #[error("PostgreSQL did not answer within {0:?}")]
    Deadline(Duration),
    #[error("no connection to PostgreSQL")]
    Pool(#[from] deadpool_postgres::PoolError),
    #[error("the pool of PostgreSQL connections could not be built")]
    Build(#[from] deadpool_postgres::BuildError),
    #[error("{0} was written by another version, and this one cannot read it")]
    Unreadable(String, #[source] serde_json::Error),
    #[error("migration {0} could not be applied")]
    Migrate(&'static str, #[source] Box<Error>),
    #[error(
        "migration {0} is not what this database was given: run the version that applied it, or a newer one that left it alone"
    )]
    Changed(&'static str),
}

impl Error {
    /// Would the same call succeed once the database is back?
    pub fn is_transient(&self) -> bool {
        match self {
            Error::Sqlite(error) => is_passing_in_sqlite(error),
            Error::Commit(error) => is_passing_in_sqlite(error),
            Error::Postgres(error) => error.is_closed() || error.as_db_error().is_none_or(is_passing_in_postgres),
            Error::GroupUndone | Error::Pool(_) | Error::Deadline(_) => true,
            Error::Open(..) | Error::Closed | Error::Build(_) | Error::Unreadable(..) => false,
            Error::Migrate(..) | Error::Changed(_) => false,
        }
    }

    /// PostgreSQL answered, and its certificate is not trusted: what to do about it.
    pub fn distrust(&self) -> Option<&'static str> {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = cause {
            let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
            if let Some(rustls::Error::InvalidCertificate(error)) = inner.and_then(|inner| inner.downcast_ref()) {
                return Some(postgres::advice(error));
            }
            cause = error.source();
        }
        None
    }

    /// Does PostgreSQL not let this role do it?
    pub fn is_forbidden(&self) -> bool {
        match self {
            Error::Postgres(error) => error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE),
            Error::Migrate(_, error) => error.is_forbidden(),
            _ => false,
        }
    }

    /// Is SQLite's disk full, broken, or read-only?
    pub fn is_of_the_disk(&self) -> bool {
        use rusqlite::ErrorCode::{CannotOpen, DiskFull, ReadOnly, SystemIoFailure};
        let code = match self {
            Error::Sqlite(error) => error.sqlite_error_code(),
            Error::Commit(error) => error.sqlite_error_code(),
            _ => None,
        };
        matches!(code, Some(CannotOpen | DiskFull | ReadOnly | SystemIoFailure))
    }

    /// Is there no partition for the row? Then it fits as soon as one is made.
    pub fn is_missing_partition(&self) -> bool {
        matches!(self, Error::Postgres(error) if error.as_db_error().is_some_and(is_without_partition))
    }

    /// Was a text given that no row can hold? PostgreSQL takes no NUL; SQLite does, and finds nothing.
    fn is_unstorable_text(&self) -> bool {
        matches!(self, Error::Postgres(error) if error.code() == Some(&SqlState::CHARACTER_NOT_IN_REPERTOIRE))
    }

    /// Is what the new row belongs to gone, or was never there?
    pub fn is_orphan(&self) -> bool {
        match self {
            Error::Sqlite(rusqlite::Error::SqliteFailure(error, _)) => {
                error.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY
            }
            Error::Postgres(error) => error.code() == Some(&SqlState::FOREIGN_KEY_VIOLATION),
            _ => false,
        }
    }

    /// Did a row with this key exist already?
    pub fn is_duplicate(&self) -> bool {
        match self {
            Error::Sqlite(rusqlite::Error::SqliteFailure(error, _)) => {
                matches!(
                    error.extended_code,
                    rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY | rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE
                )
            }
            Error::Postgres(error) => error.code() == Some(&SqlState::UNIQUE_VIOLATION),
            _ => false,
        }
    }
}

fn is_passing_in_sqlite(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked, DiskFull, SystemIoFailure};
    matches!(error.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked | DiskFull | SystemIoFailure))
}

/// All but what the row itself is at fault for: it comes twice or not at all, is no such value, breaks a constraint, or is too
/// large. Whatever else it is - a failover, a lock, a deadline, a right that is missing - ends without a change to the row.
fn is_passing_in_postgres(error: &DbError) -> bool {
    let is_of_the_row = ["21", "22", "23", "54"].iter().any(|class| error.code().code().starts_with(class));
    !is_of_the_row || is_without_partition(error)
}

/// PostgreSQL has no code of its own for it, but a check that was broken has a name.
fn is_without_partition(error: &DbError) -> bool {
    error.code() == &SqlState::CHECK_VIOLATION && error.constraint().is_none()
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        if error.is_transient() {
            tracing::warn!(error = %crate::problem::Chain(&error), "The database could not do it; the caller may try again.");
            return Problem::unavailable(
                "database_unavailable",
                "the database does not answer right now; try again",
                1,
            );
        }
        if error.is_orphan() {
            return Problem::new(StatusCode::NOT_FOUND, "not_found", "what this belongs to was deleted meanwhile");
        }
        if error.is_unstorable_text() {
            return Problem::new(StatusCode::BAD_REQUEST, "invalid_text", "a text here cannot hold a NUL character");
        }
        if let Error::Unreadable(..) = &error {
            tracing::error!(error = %crate::problem::Chain(&error), "A row cannot be read.");
            let detail = format!("{error}: ask a replica of that version, or bring this one up to it");
            return Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "unreadable_row", detail);
        }
        Problem::internal(&error)
    }
}
