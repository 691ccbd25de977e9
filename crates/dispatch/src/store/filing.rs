//! SQLite's lists by subscription and by type are filled in bulk.
//!
//! Their trees are written at random places: row by row, every commit would put a page of each into the log. So a commit notes
//! the ids of what it made, and once there are some thousands all of them are filed in one go. Whoever walks one of the two
//! lists has the rest filed first, and misses nothing.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use platform::{
    db::{Database, Error},
    problem::Chain,
};
use rusqlite::Connection;

use super::{NewEvent, Store, flights::is_in_flight};

/// So many rows are filed in one go: enough to share their pages, few enough to be done in less than a tenth of a second.
const AT_ONCE: usize = 32_768;

/// How many rows this process has noted since it last filed. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Filing(Arc<AtomicUsize>);

impl Filing {
    /// Notes events that are new, with their deliveries that have rows, in the commit that makes them.
    pub(super) fn note<'a>(
        &self,
        connection: &Connection,
        fresh: impl Iterator<Item = &'a NewEvent>,
    ) -> rusqlite::Result<()> {
        let (mut events, mut deliveries) = (Vec::new(), Vec::new());
        for event in fresh {
            events.push(event.uid.as_str());
            let rows = event.deliveries.iter().filter(|delivery| !is_in_flight(event, delivery));
            deliveries.extend(rows.map(|delivery| delivery.id.as_str()));
        }
        self.note_all(connection, &events, &deliveries)
    }

    /// Notes deliveries that have rows now.
    pub(super) fn note_deliveries(&self, connection: &Connection, deliveries: &[&str]) -> rusqlite::Result<()> {
        self.note_all(connection, &[], deliveries)
    }

    fn note_all(&self, connection: &Connection, events: &[&str], deliveries: &[&str]) -> rusqlite::Result<()> {
        let rows = events.len() + deliveries.len();
        if rows == 0 {
            return Ok(());
        }
        note(connection, events, deliveries)?;
        if self.0.fetch_add(rows, Relaxed) + rows >= AT_ONCE {
            self.0.store(0, Relaxed);
            file(connection)?;
        }
        Ok(())
    }
}

pub(super) fn note(connection: &Connection, events: &[&str], deliveries: &[&str]) -> rusqlite::Result<()> {
    let [events, deliveries] = [events, deliveries].map(|ids| serde_json::to_string(ids).expect("ids are plain text"));
    connection.prepare_cached(include_str!("sqlite/note_unfiled.sql"))?.execute([events, deliveries]).map(drop)
}

pub(super) fn file(connection: &Connection) -> rusqlite::Result<()> {
    for statement in [
        include_str!("sqlite/file_deliveries.sql"),
        include_str!("sqlite/file_events.sql"),
        include_str!("sqlite/empty_unfiled.sql"),
    ] {
        connection.prepare_cached(statement)?.execute([])?;
    }
    Ok(())
}

impl Store {
    /// Files what was noted. Where SQLite takes no writes, the lists lack the newest, and that is all.
    pub(super) async fn file(&self) {
        let Database::Sqlite(sqlite) = &self.database else { return };
        let filed = async {
            let any = include_str!("sqlite/any_unfiled.sql");
            if sqlite.read(|connection| connection.prepare_cached(any)?.query_row([], |row| row.get(0))).await? {
                sqlite.write(file).await?;
            }
            Ok::<_, Error>(())
        };
        if let Err(error) = filed.await {
            tracing::warn!(error = %Chain(&error), "Lists by subscription and type lack the newest rows.");
        }
    }
}

#[cfg(test)]
mod tests;
