//! A batch's changes on SQLite: a loop of prepared statements inside the writer's group commit.

use platform::db::{Error, sqlite::Sqlite};
use rusqlite::{Connection, OptionalExtension, params};

use super::{Changed, Changes, Held, json, note};
use crate::{
    job::Progress,
    store::{filing, flights, milliseconds},
};

pub(super) async fn commit(
    database: &Sqlite,
    held: Held,
    changes: Changes,
    mut progress: Progress,
    is_done: bool,
) -> Result<Option<Progress>, Error> {
    database
        .write(move |connection| {
            let mut hold = connection.prepare_cached(include_str!("sqlite/hold_job.sql"))?;
            if hold.query_row(params![held.id, held.fence], |_| Ok(())).optional()?.is_none() {
                return Ok(None);
            }
            let changed = change(connection, &changes)?;
            note(&mut progress, &changes, &changed);
            let mut save = connection.prepare_cached(include_str!("sqlite/save_progress.sql"))?;
            save.execute(params![held.id, held.fence, json(&progress), milliseconds(held.lease), is_done])?;
            Ok(Some(progress))
        })
        .await
}

fn change(connection: &Connection, changes: &Changes) -> rusqlite::Result<Changed> {
    let mut changed = Changed::default();
    let mut requeue = connection.prepare_cached(include_str!("sqlite/requeue.sql"))?;
    for one in &changes.requeue {
        changed.requeued += requeue.execute(params![one.id, one.fence, milliseconds(one.delay)])? as u64;
    }
    let mut create = connection.prepare_cached(include_str!("sqlite/create_delivery.sql"))?;
    for one in &changes.create {
        let delay = milliseconds(one.delay);
        changed.created +=
            create.execute(params![one.id, one.event_uid, one.subscription, one.ordering_key, delay])? as u64;
    }
    if !changes.create.is_empty() {
        let created: Vec<&str> = changes.create.iter().map(|one| one.id.as_str()).collect();
        filing::note(connection, &[], &created)?;
    }
    if [changes.create.len(), changes.delete.len(), changes.bare_events.len()] != [0; 3] {
        filing::file(connection)?;
    }
    let mut call_off = connection.prepare_cached(include_str!("sqlite/call_off.sql"))?;
    for (id, fence) in &changes.cancel {
        changed.cancelled += call_off.execute(params![id, fence])? as u64;
    }
    // An event is not bare while a delivery of it is in flight, and what lands later would bring back what is deleted here.
    while !changes.bare_events.is_empty() && flights::land(connection, flights::ALL, i64::MAX)? > 0 {}
    let mut unfile = connection.prepare_cached(include_str!("sqlite/unfile_delivery.sql"))?;
    let mut delete = connection.prepare_cached(include_str!("sqlite/purge_delivery.sql"))?;
    let mut attempts = connection.prepare_cached(include_str!("sqlite/purge_attempts.sql"))?;
    for (id, fence) in &changes.delete {
        unfile.execute(params![id, fence])?;
        let deleted = delete.execute(params![id, fence])?;
        if deleted > 0 {
            attempts.execute(params![id])?;
        }
        changed.deleted += deleted as u64;
    }
    let mut unfile = connection.prepare_cached(include_str!("sqlite/unfile_event.sql"))?;
    let mut event = connection.prepare_cached(include_str!("sqlite/purge_event.sql"))?;
    for uid in &changes.bare_events {
        unfile.execute(params![uid])?;
        changed.events_deleted += event.execute(params![uid])? as u64;
    }
    Ok(changed)
}
