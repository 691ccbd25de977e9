//! Making room: partitions of PostgreSQL ahead of time, and the end of what is older than retention.
//!
//! In PostgreSQL a day's rows lie in one partition of each big table, so old days are dropped, not deleted row by row; of one in
//! which something waits for its time, that stays.
//! In SQLite old rows are deleted a few thousand at a time, so that a write never waits long.

#[cfg(test)]
mod tests;

use std::{path::Path, time::Duration};

use deadpool_postgres::{GenericClient, Object};
use platform::{
    db::{Database, Error, postgres::Postgres, sqlite::Sqlite},
    problem::Chain,
    query,
};
use time::{Date, OffsetDateTime, Time};

use super::{SKEW, Store, filing, first_id, flights::ALL, milliseconds};

/// The big tables, the prefix of their ids, and nothing else is partitioned.
const PARTITIONED: [(&str, &str); 3] = [("events", "evt"), ("deliveries", "dlv"), ("attempts", "att")];
/// Partitions made ahead: replicas may sleep over a weekend, and clocks may be hours apart.
const DAYS_AHEAD: i64 = 4;
/// Every delivery leaves a dead row or two behind it. By default a partition of millions is cleaned after a fifth of it is
/// dead, and claims walk over all of that; here after a fiftieth, and without pauses.
const VACUUM: &str = "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, \
    autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0";
/// SQLite has one writer, and all others wait for it: about so many rows are deleted at a time.
const ROUND: usize = 2000;
/// Ending a day may mean to delete millions of rows one by one; no more than this.
const LONGEST: Duration = Duration::from_secs(600);
/// "dispatch" in ASCII: whoever holds this advisory lock makes partitions.
const LOCK: i64 = 0x6469_7370_6174_6368;

impl Store {
    /// Makes the partitions of the coming days (in SQLite it files what was left unfiled). Intake needs today's, so this runs before it, and fails for want of that
    /// alone; without the right to make any it says so.
    pub async fn prepare_days(&self) -> Result<(), crate::error::Error> {
        let Database::Postgres(postgres) = &self.database else {
            self.file().await;
            return Ok(());
        };
        let mut client = postgres.client().await?;
        let today = database_date(&client).await?;
        let missing = missing_days(&client, today).await?;
        let Some(first) = missing.iter().map(|day| day.date).min() else { return Ok(()) };
        let has_today = missing.iter().all(|day| day.date != today);
        match make_partitions(&mut client, today).await {
            Err(source) if source.is_forbidden() => Err(crate::error::Error::NoDay { first, has_today, source }),
            Err(error) if has_today => {
                tracing::warn!(error = %Chain(&error), "Not all partitions of the coming days were made; trying again in an hour.");
                Ok(())
            }
            made => Ok(made?),
        }
    }

    /// Ends what is older than `retention`. Returns how many partitions, or events, went.
    pub async fn forget(&self, retention: Duration) -> Result<u64, Error> {
        self.land_some(ALL).await?;
        self.forget_rejected(retention).await?;
        let subscriptions = query!("forget_subscriptions").with([milliseconds(retention).into()]);
        self.database.transact([query!("forget_secrets").with([]), subscriptions]).await?;
        match &self.database {
            Database::Postgres(postgres) => drop_partitions(postgres, retention).await,
            Database::Sqlite(sqlite) => delete_old_rows(sqlite, retention).await,
        }
    }

    /// What SQLite's file and its log take of the disk. PostgreSQL's size is its own to tell.
    pub(crate) async fn bytes_on_disk(&self) -> Option<u64> {
        let Database::Sqlite(sqlite) = &self.database else { return None };
        let mut log = sqlite.path().as_os_str().to_owned();
        log.push("-wal");
        let mut bytes = 0;
        for file in [sqlite.path(), Path::new(&log)] {
            bytes += tokio::fs::metadata(file).await.map_or(0, |metadata| metadata.len());
        }
        Some(bytes)
    }
}

async fn delete_old_rows(sqlite: &Sqlite, retention: Duration) -> Result<u64, Error> {
    let before = first_id("evt", OffsetDateTime::now_utc() - retention + SKEW);
    let mut gone = 0;
    loop {
        let (retention_ms, before) = (milliseconds(retention), before.clone());
        let (old, deleted) = sqlite
            .write(move |connection| {
                filing::file(connection)?;
                let mut find = connection.prepare_cached(include_str!("sqlite/old_events.sql"))?;
                let old = find.query_map((retention_ms, &before), |row| row.get::<_, String>(0))?;
                let old = old.collect::<Result<Vec<_>, _>>()?;
                let (mut rows, mut deleted) = (0, 0);
                for uid in &old {
                    // An event may have gone to thousands.
                    if rows > ROUND {
                        break;
                    }
                    for statement in [
                        include_str!("sqlite/delete_attempts.sql"),
                        include_str!("sqlite/unfile_deliveries.sql"),
                        include_str!("sqlite/delete_deliveries.sql"),
                        include_str!("sqlite/unfile_event.sql"),
                        include_str!("sqlite/delete_event.sql"),
                    ] {
                        rows += connection.prepare_cached(statement)?.execute([uid])?;
                    }
                    deleted += 1;
                }
                Ok((old.len(), deleted))
            })
            .await?;
        gone += deleted;
        if old == 0 {
            return Ok(gone);
        }
    }
}

/// One table's share of a day.
#[derive(Debug, PartialEq)]
struct Day {
    table: &'static str,
    prefix: &'static str,
    date: Date,
}

/// Of yesterday and the days to come, those that lack a partition.
async fn missing_days<C: GenericClient>(client: &C, today: Date) -> Result<Vec<Day>, Error> {
    let mut missing = Vec::new();
    for (table, prefix) in PARTITIONED {
        let rows = client.query(include_str!("postgres/list_partitions.sql"), &[&table]).await?;
        let there: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
        let days = (-1..=DAYS_AHEAD).map(|day| Day { table, prefix, date: today + time::Duration::days(day) });
        missing.extend(days.filter(|day| !there.contains(&partition(table, day.date).as_str())));
    }
    Ok(missing)
}

/// One is needed now.
pub(super) async fn make_days(postgres: &Postgres) -> Result<(), Error> {
    let mut client = postgres.client().await?;
    let today = database_date(&client).await?;
    make_partitions(&mut client, today).await
}

/// Nobody waits for it, and it waits for no reader or writer: a table that is made beforehand is attached under a lock which
/// both can live with. Where it would wait for something else it gives up soon.
async fn make_partitions(client: &mut Object, today: Date) -> Result<(), Error> {
    // Replicas that start together would all make the same tables.
    let transaction = client.transaction().await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
    transaction.batch_execute("SET LOCAL lock_timeout = '1s'").await?;
    for Day { table, prefix, date } in missing_days(&transaction, today).await? {
        let (from, to) = (bound(prefix, date), bound(prefix, date + time::Duration::days(1)));
        let name = partition(table, date);
        // The bounds hold nothing but our own alphabet.
        transaction
            .batch_execute(&format!(
                "CREATE TABLE {name} (LIKE {table} INCLUDING ALL) WITH ({VACUUM}); \
                ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ('{from}') TO ('{to}')"
            ))
            .await?;
    }
    Ok(transaction.commit().await?)
}

async fn drop_partitions(postgres: &Postgres, retention: Duration) -> Result<u64, Error> {
    let mut client = postgres.client().await?;
    let outcome = tokio::time::timeout(LONGEST, end_old_days(&mut client, retention)).await;
    outcome.unwrap_or_else(|_| {
        // Stuck in the middle of a query, it would hold up whoever gets it next.
        drop(Object::take(client));
        Err(Error::Deadline(LONGEST))
    })
}

async fn end_old_days(client: &mut Object, retention: Duration) -> Result<u64, Error> {
    let today = database_date(client).await?;
    let keep_from = keep_from(today, retention);
    let gone = end_days_before(client, keep_from, retention).await;
    let before = bound("evt", keep_from);
    client.execute(include_str!("postgres/cancel_orphans.sql"), &[&before]).await?;
    client.execute(include_str!("postgres/delete_old_keys.sql"), &[&before]).await?;
    gone
}

async fn end_days_before(client: &mut Object, keep_from: Date, retention: Duration) -> Result<u64, Error> {
    let mut gone = 0;
    for (table, _) in PARTITIONED {
        let partitions = client.query(include_str!("postgres/list_partitions.sql"), &[&table]).await?;
        let oldest = partition(table, keep_from);
        for name in partitions.iter().map(|row| row.get::<_, String>(0)).filter(|name| *name < oldest) {
            gone += u64::from(end_day(client, table, &name, retention).await?);
        }
    }
    Ok(gone)
}

/// The first day of which something may be younger than `retention`.
pub(super) fn keep_from(today: Date, retention: Duration) -> Date {
    let days = retention.as_secs().div_ceil(86_400);
    today - time::Duration::days(i64::try_from(days).unwrap_or(i64::MAX / 2))
}

/// Ends a day of a table, but for what waits for its time: a delivery, and its event, which may be of an earlier day. A subscription
/// that was switched off not long ago may be resumed any moment. Returns whether the whole partition went.
async fn end_day(client: &mut Object, table: &str, name: &str, retention: Duration) -> Result<bool, Error> {
    let waits = format!(
        "d.due_at IS NOT NULL AND EXISTS (SELECT 1 FROM subscriptions s WHERE s.tenant_id = d.tenant_id AND s.id = d.subscription_id \
         AND (s.enabled OR (s.deleted_at IS NULL AND s.updated_at > now() - interval '{} s')))",
        retention.as_secs()
    );
    let (any, rest) = match table {
        "deliveries" => (
            format!("SELECT EXISTS (SELECT 1 FROM {name} d WHERE {waits})"),
            format!("DELETE FROM {name} d WHERE NOT ({waits})"),
        ),
        "events" => (
            format!("SELECT EXISTS (SELECT 1 FROM deliveries d JOIN {name} e ON e.uid = d.event_uid WHERE {waits})"),
            format!(
                "DELETE FROM {name} e WHERE NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_uid = e.uid AND {waits})"
            ),
        ),
        _ => ("SELECT FALSE".to_owned(), String::new()),
    };
    let is_needed = client.query_one(&any, &[]).await?.get::<_, bool>(0);
    if is_needed {
        client.batch_execute(&rest).await?;
    } else {
        drop_table(client, name).await?;
    }
    Ok(!is_needed)
}

/// Behind a drop that waits for a reader, everyone else waits too: it gives up soon, and the next round tries again.
async fn drop_table(client: &mut Object, name: &str) -> Result<(), Error> {
    let transaction = client.transaction().await?;
    transaction.batch_execute(&format!("SET LOCAL lock_timeout = '1s'; DROP TABLE IF EXISTS {name}")).await?;
    Ok(transaction.commit().await?)
}

async fn database_date(client: &Object) -> Result<Date, Error> {
    let row = client.query_one("SELECT now()", &[]).await?;
    Ok(row.get::<_, OffsetDateTime>(0).date())
}

fn bound(prefix: &str, date: Date) -> String {
    first_id(prefix, date.with_time(Time::MIDNIGHT).assume_utc())
}

/// Sorts by date as text.
fn partition(table: &str, date: Date) -> String {
    format!("{table}_{:04}{:02}{:02}", date.year(), u8::from(date.month()), date.day())
}
