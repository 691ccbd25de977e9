//! SQLite's lists by subscription and by type are filled in bulk.
//!
//! Their trees are written at random places: row by row, every commit would put a page of each into the log. So a commit notes
//! the ids of what it made, and once there are some thousands all of them are filed in one go. Whoever walks one of the two
//! lists has the rest filed first, and misses nothing.
//!
//! The notes in the file are the truth. The process that made them also remembers what they stand for, and files that, sorted, as
//! long as they are the notes in the file; where others are among them, all are looked up row by row. Before rows are deleted, all
//! notes are filed: nothing is remembered that is gone.

use std::sync::Arc;

use hashbrown::HashSet;
use parking_lot::Mutex;
use platform::{
    db::{Database, Error},
    problem::Chain,
};
use rusqlite::Connection;

use super::{NewEvent, Record, Store, flights::is_in_flight};

/// So many rows are filed in one go: enough to share their pages, few enough to be done in less than a tenth of a second.
const AT_ONCE: usize = 32_768;

/// What this process has noted since it last filed. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Filing(Arc<Mutex<Vec<Note>>>);

/// What is to be filed for a row of `unfiled`.
#[derive(Default)]
struct Note {
    events: Vec<Line>,
    deliveries: Vec<Line>,
}

/// Tenant, type or subscription, and id.
type Line = (Arc<str>, Arc<str>, String);

impl Note {
    fn rows(&self) -> usize {
        self.events.len() + self.deliveries.len()
    }

    /// Its first id: no other note has it.
    fn name(&self) -> &str {
        self.events.first().or(self.deliveries.first()).map_or("", |(.., id)| id)
    }
}

impl Filing {
    /// Notes events that are new, with their deliveries that have rows, in the commit that makes them.
    pub(super) fn note<'a>(
        &self,
        connection: &Connection,
        fresh: impl Iterator<Item = &'a NewEvent>,
    ) -> rusqlite::Result<()> {
        let mut note = Note::default();
        for event in fresh {
            note.events.push((Arc::clone(&event.tenant), event.event_type.as_str().into(), event.uid.clone()));
            let rows = event.deliveries.iter().filter(|delivery| !is_in_flight(event, delivery));
            note.deliveries.extend(
                rows.map(|delivery| {
                    (Arc::clone(&event.tenant), Arc::clone(&delivery.subscription), delivery.id.clone())
                }),
            );
        }
        self.keep(connection, note)
    }

    /// Notes deliveries that have rows now, by the first that was said of them.
    pub(super) fn note_first(&self, connection: &Connection, records: &[Record]) -> rusqlite::Result<()> {
        let line = |record: &Record| {
            let in_flight = record.in_flight.as_ref()?;
            Some((Arc::clone(&record.tenant), Arc::clone(&in_flight.subscription), record.delivery.clone()))
        };
        self.keep(connection, Note { deliveries: records.iter().filter_map(line).collect(), ..Note::default() })
    }

    fn keep(&self, connection: &Connection, kept: Note) -> rusqlite::Result<()> {
        if kept.rows() == 0 {
            return Ok(());
        }
        let [events, deliveries] =
            [&kept.events, &kept.deliveries].map(|lines| lines.iter().map(|(.., id)| id.as_str()).collect::<Vec<_>>());
        note(connection, &events, &deliveries)?;
        let mut notes = self.0.lock();
        notes.push(kept);
        if notes.iter().map(Note::rows).sum::<usize>() >= AT_ONCE {
            file_notes(connection, std::mem::take(&mut notes))?;
        }
        Ok(())
    }
}

/// Files what these notes stand for, and whatever else was noted.
fn file_notes(connection: &Connection, mut notes: Vec<Note>) -> rusqlite::Result<()> {
    let mut stored = connection.prepare_cached(include_str!("sqlite/list_unfiled.sql"))?;
    let stored: Vec<String> = stored.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let names: HashSet<&str> = stored.iter().map(String::as_str).collect();
    // The commit of a note may have failed, and somebody else may have filed it.
    notes.retain(|note| names.contains(note.name()));
    if notes.iter().map(Note::name).collect::<HashSet<_>>().len() < stored.len() {
        return file(connection);
    }
    let (events, deliveries): (Vec<_>, Vec<_>) = notes.into_iter().map(|note| (note.events, note.deliveries)).unzip();
    for (statement, lines) in
        [(include_str!("sqlite/file_event.sql"), events), (include_str!("sqlite/file_delivery.sql"), deliveries)]
    {
        let mut lines: Vec<Line> = lines.into_iter().flatten().collect();
        // In the order of the tree, so that each of its pages is changed once.
        lines.sort_unstable();
        let mut file = connection.prepare_cached(statement)?;
        lines.iter().try_for_each(|(tenant, list, id)| file.execute([&**tenant, &**list, id]).map(drop))?;
    }
    connection.prepare_cached(include_str!("sqlite/empty_unfiled.sql"))?.execute([]).map(drop)
}

pub(super) fn note(connection: &Connection, events: &[&str], deliveries: &[&str]) -> rusqlite::Result<()> {
    let [events, deliveries] = [events, deliveries].map(|ids| serde_json::to_string(ids).expect("ids are plain text"));
    connection.prepare_cached(include_str!("sqlite/note_unfiled.sql"))?.execute([events, deliveries]).map(drop)
}

/// Files everything that was noted, by whomever.
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
