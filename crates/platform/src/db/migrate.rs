//! Migrations: each crate brings its own, compiled in, with a history table of its own.
//!
//! Schemas only grow (expand, migrate, contract), so a replica of the version before keeps working beside a new one: a
//! migration it does not know is no error. One that it knows and that was changed since is.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    hash::{Hash, Hasher},
    io,
    os::unix::fs::OpenOptionsExt,
};

use siphasher::sip::SipHasher13;
use tokio_postgres::Client;

use super::{Database, Error};

/// "tidegate" in ASCII: whoever holds this advisory lock migrates.
const LOCK: i64 = 0x7469_6465_6761_7465;

/// One crate's schema in both dialects: `("V1__tenants", "CREATE TABLE …")`.
#[derive(Clone, Copy)]
pub struct Migrations {
    pub name: &'static str,
    pub sqlite: &'static [(&'static str, &'static str)],
    pub postgres: &'static [(&'static str, &'static str)],
}

impl Migrations {
    /// The table of what was applied.
    fn history(&self) -> String {
        format!("migrations_{}", self.name)
    }
}

/// A migration that this call applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    pub set: &'static str,
    pub migration: &'static str,
}

/// How a database stands to what this version knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schema {
    /// Nothing was ever applied to it.
    New,
    /// This migration is the first that it lacks.
    Behind(&'static str),
    UpToDate,
}

/// Reads, and asks for no right to do more.
pub(super) async fn schema(database: &Database, sets: &[Migrations]) -> Result<Schema, Error> {
    let (mut is_new, mut lacks) = (true, None);
    for set in sets {
        let (list, before) = match database {
            Database::Sqlite(sqlite) => (set.sqlite, history_in_sqlite(&sqlite.connection()?, set)?),
            Database::Postgres(postgres) => (set.postgres, history_in_postgres(&*postgres.client().await?, set).await?),
        };
        is_new &= before.is_empty();
        lacks = lacks.or(missing(list, &before)?.first().map(|migration| migration.name));
    }
    Ok(match lacks {
        None => Schema::UpToDate,
        Some(_) if is_new => Schema::New,
        Some(name) => Schema::Behind(name),
    })
}

pub(super) async fn run(database: &Database, sets: &[Migrations]) -> Result<Vec<Applied>, Error> {
    let mut applied = Vec::new();
    // Whoever may not change the schema can still start on one that needs no change.
    if schema(database, sets).await? == Schema::UpToDate {
        return Ok(applied);
    }
    match database {
        Database::Sqlite(sqlite) => {
            // SQLite locks one transaction at a time; a file lock covers the whole list, between processes too.
            let path = sqlite.path().with_extension("migrate.lock");
            let open = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
            let file = open.and_then(locked).map_err(|error| Error::Open(path, error))?;
            let mut connection = sqlite.connection()?;
            for set in sets {
                applied.extend(migrate_sqlite(&mut connection, set)?);
            }
            drop(file);
        }
        Database::Postgres(postgres) => {
            let mut client = postgres.client().await?;
            if !client.query_one("SELECT pg_try_advisory_lock($1)", &[&LOCK]).await?.get::<_, bool>(0) {
                tracing::info!("Waiting for another process to migrate the schema.");
                client.execute("SELECT pg_advisory_lock($1)", &[&LOCK]).await?;
            }
            let outcome = async {
                for set in sets {
                    applied.extend(migrate_postgres(&mut client, set).await?);
                }
                Ok::<_, Error>(())
            }
            .await;
            client.execute("SELECT pg_advisory_unlock($1)", &[&LOCK]).await?;
            outcome?;
        }
    }
    Ok(applied)
}

fn locked(file: File) -> io::Result<File> {
    if file.try_lock().is_err() {
        tracing::info!("Waiting for another process to migrate the schema.");
        file.lock()?;
    }
    Ok(file)
}

fn history_in_sqlite(connection: &rusqlite::Connection, set: &Migrations) -> Result<HashMap<i32, String>, Error> {
    let history = set.history();
    if !connection.table_exists(None, history.as_str())? {
        return Ok(HashMap::new());
    }
    let mut read = connection.prepare(&format!("SELECT version, checksum FROM {history}"))?;
    Ok(read.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?)
}

async fn history_in_postgres(client: &Client, set: &Migrations) -> Result<HashMap<i32, String>, Error> {
    let history = set.history();
    if !client.query_one("SELECT to_regclass($1::text) IS NOT NULL", &[&history]).await?.get::<_, bool>(0) {
        return Ok(HashMap::new());
    }
    let rows = client.query(&format!("SELECT version, checksum FROM {history}"), &[]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

fn migrate_sqlite(connection: &mut rusqlite::Connection, set: &Migrations) -> Result<Vec<Applied>, Error> {
    let history = set.history();
    connection.execute_batch(&create(&history))?;
    let before = history_in_sqlite(connection, set)?;
    let note = format!(
        "INSERT INTO {history} (version, name, applied_on, checksum)
         VALUES (?1, ?2, strftime('%Y-%m-%dT%H:%M:%SZ', 'now'), ?3)"
    );
    let mut applied = Vec::new();
    for migration in missing(set.sqlite, &before)? {
        let mut apply = || {
            let transaction = connection.transaction()?;
            transaction.execute_batch(migration.sql)?;
            transaction.execute(&note, (migration.version, migration.title, migration.checksum()))?;
            transaction.commit()
        };
        apply().map_err(|error| migration.failed(error.into()))?;
        applied.push(Applied { set: set.name, migration: migration.name });
    }
    Ok(applied)
}

async fn migrate_postgres(client: &mut Client, set: &Migrations) -> Result<Vec<Applied>, Error> {
    let history = set.history();
    client.batch_execute(&create(&history)).await?;
    let before = history_in_postgres(client, set).await?;
    let note = format!(
        "INSERT INTO {history} (version, name, applied_on, checksum)
         VALUES ($1, $2, to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), $3)"
    );
    let mut applied = Vec::new();
    for migration in missing(set.postgres, &before)? {
        let apply = async {
            let transaction = client.transaction().await?;
            transaction.batch_execute(migration.sql).await?;
            transaction.execute(&note, &[&migration.version, &migration.title, &migration.checksum()]).await?;
            transaction.commit().await
        };
        apply.await.map_err(|error| migration.failed(error.into()))?;
        applied.push(Applied { set: set.name, migration: migration.name });
    }
    Ok(applied)
}

fn create(history: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {history} (
             version int4 PRIMARY KEY, name VARCHAR(255), applied_on VARCHAR(255), checksum VARCHAR(255))"
    )
}

/// `V1__tenants`, taken apart.
pub(super) struct Migration {
    name: &'static str,
    version: i32,
    title: &'static str,
    sql: &'static str,
}

impl Migration {
    pub(super) fn new(&(name, sql): &(&'static str, &'static str)) -> Self {
        let (version, title) = name
            .strip_prefix('V')
            .and_then(|rest| rest.split_once("__"))
            .and_then(|(version, title)| Some((version.parse().ok()?, title)))
            .expect("a migration is called V<number>__<title>");
        Migration { name, version, title, sql }
    }

    /// Stored with what was applied: this function never changes.
    pub(super) fn checksum(&self) -> String {
        let mut hasher = SipHasher13::new();
        (self.title, self.version, self.sql).hash(&mut hasher);
        hasher.finish().to_string()
    }

    fn failed(&self, error: Error) -> Error {
        Error::Migrate(self.name, Box::new(error))
    }
}

/// What of a list is not in the history yet, in its order.
fn missing(list: &[(&'static str, &'static str)], before: &HashMap<i32, String>) -> Result<Vec<Migration>, Error> {
    let mut missing = Vec::new();
    for migration in list.iter().map(Migration::new) {
        match before.get(&migration.version) {
            None => missing.push(migration),
            Some(checksum) if *checksum == migration.checksum() => (),
            Some(_) => return Err(Error::Changed(migration.name)),
        }
    }
    Ok(missing)
}
