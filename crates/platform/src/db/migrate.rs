//! Migrations: each crate brings its own, compiled in, with a history table of its own.
//!
//! Schemas only grow (expand, migrate, contract), so a replica of the version before keeps working beside a new one: a
//! migration it does not know is no error. One that it knows and that was changed since is.

use std::{
    fs::{File, OpenOptions},
    io,
};

use refinery_core::{Migration, Runner};

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

/// A migration that this call applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    pub set: &'static str,
    pub migration: String,
}

pub(super) async fn run(database: &Database, sets: &[Migrations]) -> Result<Vec<Applied>, Error> {
    let mut applied = Vec::new();
    match database {
        Database::Sqlite(sqlite) => {
            // SQLite locks one transaction at a time; a file lock covers the whole list, between processes too.
            let path = sqlite.path().with_extension("migrate.lock");
            let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
            let file = open.and_then(locked).map_err(|error| Error::Open(path, error))?;
            let mut connection = sqlite.connection()?;
            for set in sets {
                let report = runner(set.name, set.sqlite)?.run(&mut connection)?;
                applied.extend(report.applied_migrations().iter().map(|migration| name(set, migration)));
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
                    let report = runner(set.name, set.postgres)?.run_async(&mut **client).await?;
                    applied.extend(report.applied_migrations().iter().map(|migration| name(set, migration)));
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

fn runner(set: &str, migrations: &[(&str, &str)]) -> Result<Runner, Error> {
    let migrations =
        migrations.iter().map(|(name, sql)| Migration::unapplied(name, sql)).collect::<Result<Vec<_>, _>>()?;
    let mut runner = Runner::new(&migrations).set_abort_missing(false);
    runner.set_migration_table_name(format!("migrations_{set}"));
    Ok(runner)
}

fn name(set: &Migrations, migration: &Migration) -> Applied {
    Applied { set: set.name, migration: migration.to_string() }
}
