//! The hot path on SQLite: a loop of prepared statements inside the writer's group commit.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use platform::db::{Error, sqlite::Sqlite};
use rusqlite::{Connection, OptionalExtension, Row, params};
use time::OffsetDateTime;

use super::{
    Accepted, Claimed, Found, KnownEvent, Lease, NewEvent, Record,
    filing::{Filing, note},
    milliseconds,
};

pub(super) async fn take_in(
    database: &Sqlite,
    events: Arc<[NewEvent]>,
    lease: Lease,
    filing: Filing,
) -> Result<Vec<Accepted>, Error> {
    database
        .write_batch(move |connection| {
            let now = now(connection)?;
            let accepted: Vec<Accepted> =
                events.iter().map(|event| insert(connection, event, &lease, now)).collect::<Result<_, _>>()?;
            let fresh = events.iter().zip(&accepted).filter(|(_, accepted)| matches!(accepted, Accepted::New { .. }));
            filing.note(connection, fresh.map(|(event, _)| event))?;
            Ok(accepted)
        })
        .await
}

/// An event of our own, for anyone to deliver.
pub(super) fn raise(connection: &Connection, event: &NewEvent, now: i64) -> rusqlite::Result<()> {
    if let Accepted::New { .. } = insert(connection, event, &Lease::nobody(), now)? {
        let deliveries: Vec<&str> = event.deliveries.iter().map(|delivery| delivery.id.as_str()).collect();
        note(connection, &[&event.uid], &deliveries)?;
    }
    Ok(())
}

/// One moment for a whole batch, by SQLite's clock.
pub(super) fn now(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached(include_str!("sqlite/now.sql"))?.query_row([], |row| row.get(0))
}

// No statement here says RETURNING: it would cost a table of its own every time.
fn insert(connection: &Connection, event: &NewEvent, lease: &Lease, now: i64) -> rusqlite::Result<Accepted> {
    let at = event.created_at.map_or(now, to_ms);
    let inserted = connection.prepare_cached(include_str!("sqlite/insert_event.sql"))?.execute(params![
        event.uid,
        event.tenant,
        event.id,
        event.event_type,
        event.source,
        event.ordering_key,
        event.deliver_at.map(to_ms),
        text(&event.data),
        event.hash,
        at,
    ])?;
    if inserted == 0 {
        return known(connection, event);
    }
    let mut statement = connection.prepare_cached(include_str!("sqlite/insert_delivery.sql"))?;
    for delivery in &event.deliveries {
        let waits_until = event.deliver_at.map_or(now, to_ms);
        statement.execute(params![
            delivery.id,
            event.tenant,
            event.uid,
            delivery.subscription,
            delivery.ordering_key,
            delivery.place.as_ref().map(|_| &lease.owner),
            if delivery.place.is_some() { now + milliseconds(lease.length) } else { waits_until },
            now,
        ])?;
    }
    Ok(Accepted::New { at: from_ms(at) })
}

fn known(connection: &Connection, event: &NewEvent) -> rusqlite::Result<Accepted> {
    let mut statement = connection.prepare_cached(include_str!("sqlite/find_event.sql"))?;
    statement.query_row(params![event.tenant, event.id], |row| {
        let is_same = row.get_ref(0)?.as_blob()? == event.hash;
        let at = from_ms(row.get(1)?);
        Ok(if is_same { Accepted::Repeat { at } } else { Accepted::Conflict })
    })
}

pub(super) async fn known_events(
    database: &Sqlite,
    keys: Vec<(Arc<str>, String)>,
) -> Result<Vec<Option<KnownEvent>>, Error> {
    database
        .read(move |connection| {
            let mut find = connection.prepare_cached(include_str!("sqlite/find_event.sql"))?;
            let mut known = |tenant: &str, id: &str| {
                let row = |row: &Row<'_>| Ok(KnownEvent { hash: row.get(0)?, at: from_ms(row.get(1)?) });
                find.query_row(params![tenant, id], row).optional()
            };
            keys.iter().map(|(tenant, id)| known(tenant, id)).collect()
        })
        .await
}

pub(super) async fn claim(database: &Sqlite, lease: Lease, limit: u32) -> Result<Found, Error> {
    database
        .write_batch(move |connection| {
            let put_off =
                connection.prepare_cached(include_str!("sqlite/put_off_behind.sql"))?.execute(params![limit])?;
            let mut claim = connection.prepare_cached(include_str!("sqlite/claim_due.sql"))?;
            let mut event = connection.prepare_cached(include_str!("sqlite/event_of_delivery.sql"))?;
            let rows = claim.query_map(params![lease.owner, milliseconds(lease.length), limit], |row| {
                Ok((claimed(row)?, row.get::<_, String>(2)?))
            })?;
            let mut all = Vec::new();
            for row in rows {
                let (mut delivery, event_uid) = row?;
                event.query_row([event_uid], |row| {
                    delivery.event_id = row.get(0)?;
                    delivery.event_type = row.get(1)?;
                    delivery.event_at = from_ms(row.get(2)?);
                    delivery.data = Bytes::from(row.get::<_, String>(3)?);
                    delivery.is_operational = row.get(4)?;
                    Ok(())
                })?;
                all.push(delivery);
            }
            Ok(Found { is_all: put_off == 0 && all.len() < limit as usize, claimed: all })
        })
        .await
}

/// The delivery without its event, which lies in another table that RETURNING cannot see.
fn claimed(row: &Row<'_>) -> rusqlite::Result<Claimed> {
    Ok(Claimed {
        id: row.get(0)?,
        tenant: row.get(1)?,
        subscription: row.get(3)?,
        event_id: String::new(),
        event_type: String::new(),
        event_at: OffsetDateTime::UNIX_EPOCH,
        data: Bytes::new(),
        attempts: row.get(5)?,
        is_manual: row.get(6)?,
        is_operational: false,
        is_ordered: row.get::<_, Option<String>>(4)?.is_some(),
        fence: row.get(7)?,
    })
}

pub(super) async fn renew(database: &Sqlite, held: Vec<(String, i64)>, length: Duration) -> Result<(), Error> {
    database
        .write_batch(move |connection| {
            let mut statement = connection.prepare_cached(include_str!("sqlite/renew_leases.sql"))?;
            held.iter()
                .try_for_each(|(id, fence)| statement.execute(params![id, fence, milliseconds(length)]).map(drop))
        })
        .await
}

pub(super) async fn record(database: &Sqlite, records: Arc<[Record]>) -> Result<usize, Error> {
    database
        .write_batch(move |connection| {
            let (now, mut written) = (now(connection)?, 0);
            for record in &*records {
                written += usize::from(write(connection, record, now)?);
            }
            let ended: Vec<&str> =
                records.iter().filter(|record| record.ends_a_head()).map(|record| record.delivery.as_str()).collect();
            if !ended.is_empty() {
                let ended = serde_json::Value::from(ended).to_string();
                connection.prepare_cached(include_str!("sqlite/next_in_line.sql"))?.execute([ended])?;
            }
            Ok(written)
        })
        .await
}

fn write(connection: &Connection, record: &Record, now: i64) -> rusqlite::Result<bool> {
    let spent = i64::from(record.attempt.is_some());
    let recorded = connection.prepare_cached(include_str!("sqlite/record_outcome.sql"))?.execute(params![
        record.delivery,
        record.fence,
        record.status.as_str(),
        spent,
        1 - spent,
        record.due_in.map(milliseconds),
        record.last_error,
        now,
    ])?;
    if recorded == 0 {
        return Ok(false);
    }
    if let Some(event) = &record.raises {
        raise(connection, event, now)?;
    }
    if let Some(attempt) = &record.attempt {
        connection.prepare_cached(include_str!("sqlite/insert_attempt.sql"))?.execute(params![
            attempt.id,
            record.delivery,
            milliseconds(attempt.duration),
            attempt.response_status,
            attempt.response_headers,
            attempt.response_body.as_deref(),
            attempt.error_class,
            attempt.error,
        ])?;
    }
    Ok(true)
}

/// Payloads were read as JSON, so they are UTF-8.
fn text(data: &Bytes) -> &str {
    std::str::from_utf8(data).unwrap_or_default()
}

fn to_ms(time: OffsetDateTime) -> i64 {
    time.unix_timestamp() * 1000 + i64::from(time.millisecond())
}

fn from_ms(ms: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}
