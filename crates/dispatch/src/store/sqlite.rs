//! The hot path on SQLite: a loop of prepared statements inside the writer's group commit.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use platform::{
    db::{Error, sqlite::Sqlite},
    id,
};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params, types::Type};
use time::OffsetDateTime;

use super::{
    Accepted, Claimed, Found, InFlight, KnownEvent, Lease, NewAttempt, NewDelivery, NewEvent, Record,
    filing::{Filing, note},
    flights::{EXPIRED, FREE, MOST, NewFlight, flights_of, is_in_flight, land, since},
    milliseconds,
};

/// An attempt of so many bytes is part of its delivery's row.
const SHORT: usize = 1024;

pub(super) async fn take_in(
    database: &Sqlite,
    events: Arc<[NewEvent]>,
    lease: Lease,
    filing: Filing,
) -> Result<Vec<Accepted>, Error> {
    database
        .write_batch(move |connection| {
            let accepted = insert(connection, &events, &lease, now(connection)?)?;
            let fresh = events.iter().zip(&accepted).filter(|(_, accepted)| matches!(accepted, Accepted::New { .. }));
            filing.note(connection, fresh.map(|(event, _)| event))?;
            Ok(accepted)
        })
        .await
}

/// Events, and their deliveries: in flights, or as rows.
fn insert(connection: &Connection, events: &[NewEvent], lease: &Lease, now: i64) -> rusqlite::Result<Vec<Accepted>> {
    let mut rows = NewRows::prepare(connection)?;
    let accepted = events.iter().map(|event| rows.insert(connection, event, now));
    let accepted: Vec<Accepted> = accepted.collect::<Result<_, _>>()?;
    let is_fresh = |place: usize, _: &NewEvent| matches!(accepted[place], Accepted::New { .. });
    let mut flight = connection.prepare_cached(include_str!("sqlite/insert_flight.sql"))?;
    for NewFlight { id, lease, deliveries } in flights_of(events, is_fresh, lease) {
        let (owner, until) = lease.map(|lease| (&lease.owner, now + milliseconds(lease.length))).unzip();
        flight.execute(params![id, owner, until, deliveries.len() as i64, fly(&deliveries), now])?;
    }
    Ok(accepted)
}

/// The column of flights.
fn fly(deliveries: &[(&NewEvent, &NewDelivery)]) -> String {
    let columns = |(event, delivery): &(&'_ NewEvent, &'_ NewDelivery)| {
        (delivery.id.clone(), Arc::clone(&event.tenant), event.uid.clone(), Arc::clone(&delivery.subscription))
    };
    serde_json::to_string(&deliveries.iter().map(columns).collect::<Vec<_>>()).expect("ids are plain text")
}

/// An event of our own, for anyone to deliver.
pub(super) fn raise(connection: &Connection, event: &NewEvent, now: i64) -> rusqlite::Result<()> {
    insert(connection, std::slice::from_ref(event), &Lease::nobody(), now)?;
    note(connection, &[&event.uid], &[])
}

/// One moment for a whole batch, by SQLite's clock.
pub(super) fn now(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached(include_str!("sqlite/now.sql"))?.query_row([], |row| row.get(0))
}

/// Statements of a batch, looked up once.
// No statement here says RETURNING: it would cost a table of its own every time.
struct NewRows<'a> {
    event: CachedStatement<'a>,
    delivery: CachedStatement<'a>,
}

impl<'a> NewRows<'a> {
    fn prepare(connection: &'a Connection) -> rusqlite::Result<Self> {
        Ok(NewRows {
            event: connection.prepare_cached(include_str!("sqlite/insert_event.sql"))?,
            delivery: connection.prepare_cached(include_str!("sqlite/insert_delivery.sql"))?,
        })
    }

    /// An event, and its deliveries that have rows from the start.
    fn insert(&mut self, connection: &Connection, event: &NewEvent, now: i64) -> rusqlite::Result<Accepted> {
        let at = event.created_at.map_or(now, to_ms);
        let inserted = self.event.execute(params![
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
            event.trace,
        ])?;
        if inserted == 0 {
            return known(connection, event);
        }
        for delivery in event.deliveries.iter().filter(|delivery| !is_in_flight(event, delivery)) {
            self.delivery.execute(params![
                delivery.id,
                event.tenant,
                event.uid,
                delivery.subscription,
                delivery.ordering_key,
                event.deliver_at.map_or(now, to_ms),
                now,
            ])?;
        }
        Ok(Accepted::New { at: from_ms(at) })
    }
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

pub(super) async fn claim(database: &Sqlite, lease: Lease, limit: u32, room: u32) -> Result<Found, Error> {
    database
        .write_batch(move |connection| {
            let now = now(connection)?;
            let any_expired = connection.prepare_cached(include_str!("sqlite/any_expired.sql"));
            let landed =
                if any_expired?.query_row([now], |row| row.get(0))? { land(connection, EXPIRED, now)? } else { 0 };
            let put_off =
                connection.prepare_cached(include_str!("sqlite/put_off_behind.sql"))?.execute(params![limit])?;
            let mut claim = connection.prepare_cached(include_str!("sqlite/claim_due.sql"))?;
            let rows = claim.query_map(params![lease.owner, milliseconds(lease.length), limit], |row| {
                Ok((claimed(row)?, row.get::<_, String>(2)?))
            })?;
            let mut all = rows.collect::<Result<Vec<_>, _>>()?;
            let is_all = landed == 0 && put_off == 0 && all.len() < limit as usize;
            let room = i64::from(room) - all.len() as i64;
            let in_flight = claim_flights(connection, &lease, now, room)?;
            // One that does not fit goes by ones.
            let is_too_large = in_flight.is_empty() && room < MOST as i64 && land(connection, FREE, now)? > 0;
            let is_all = is_all && in_flight.is_empty() && !is_too_large;
            all.extend(in_flight);
            Ok(Found { claimed: with_events(connection, all)?, is_all })
        })
        .await
}

/// Each with the uid of its event, which lies in another table.
fn claim_flights(
    connection: &Connection,
    lease: &Lease,
    now: i64,
    room: i64,
) -> rusqlite::Result<Vec<(Claimed, String)>> {
    let mut claim = connection.prepare_cached(include_str!("sqlite/claim_flights.sql"))?;
    let flights = claim.query_map(params![lease.owner, now, milliseconds(lease.length), room], |row| {
        Ok((row.get::<_, Arc<str>>(0)?, row.get::<_, String>(1)?, now - row.get::<_, i64>(2)?))
    })?;
    let mut all = Vec::new();
    for flight in flights {
        let (flight, deliveries, age) = flight?;
        let since = since(age);
        let deliveries: Vec<(String, Arc<str>, String, Arc<str>)> = serde_json::from_str(&deliveries)
            .map_err(|error| rusqlite::Error::FromSqlConversionFailure(1, Type::Text, error.into()))?;
        for (id, tenant, event_uid, subscription) in deliveries {
            let in_flight = InFlight {
                flight: Arc::clone(&flight),
                event_uid: event_uid.clone(),
                subscription: Arc::clone(&subscription),
                since,
            };
            let claimed = Claimed { id, tenant, subscription, fence: 1, in_flight: Some(in_flight), ..nothing() };
            all.push((claimed, event_uid));
        }
    }
    Ok(all)
}

/// One whose event is gone is left out: nobody can make it, and the others wait for nothing.
fn with_events(connection: &Connection, all: Vec<(Claimed, String)>) -> rusqlite::Result<Vec<Claimed>> {
    let mut event = connection.prepare_cached(include_str!("sqlite/event_of_delivery.sql"))?;
    let mut with_event = |(mut delivery, event_uid): (Claimed, String)| {
        let found = event.query_row([event_uid], |row| {
            delivery.event_id = row.get(0)?;
            delivery.event_type = row.get(1)?;
            delivery.event_at = from_ms(row.get(2)?);
            delivery.data = Bytes::from(row.get::<_, String>(3)?);
            delivery.is_operational = row.get(4)?;
            delivery.trace = row.get(5)?;
            Ok(())
        });
        Ok(found.optional()?.map(|()| delivery))
    };
    all.into_iter().filter_map(|one| with_event(one).transpose()).collect()
}

/// A delivery of which nothing is known yet.
fn nothing() -> Claimed {
    Claimed {
        id: String::new(),
        tenant: "".into(),
        subscription: "".into(),
        event_id: String::new(),
        event_type: String::new(),
        event_at: OffsetDateTime::UNIX_EPOCH,
        data: Bytes::new(),
        trace: None,
        attempts: 0,
        is_manual: false,
        is_operational: false,
        is_ordered: false,
        fence: 0,
        in_flight: None,
    }
}

/// The delivery without its event, which lies in another table that RETURNING cannot see.
fn claimed(row: &Row<'_>) -> rusqlite::Result<Claimed> {
    Ok(Claimed {
        id: row.get(0)?,
        tenant: row.get(1)?,
        subscription: row.get(3)?,
        attempts: row.get(5)?,
        is_manual: row.get(6)?,
        is_ordered: row.get::<_, Option<String>>(4)?.is_some(),
        fence: row.get(7)?,
        ..nothing()
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

pub(super) async fn record(database: &Sqlite, records: Arc<[Record]>, filing: Filing) -> Result<usize, Error> {
    database
        .write_batch(move |connection| {
            let (now, mut written, mut outcomes) = (now(connection)?, 0, Outcomes::prepare(connection)?);
            for record in &*records {
                if outcomes.write(record, now)? {
                    written += 1;
                    record.raises.iter().try_for_each(|event| raise(connection, event, now))?;
                }
            }
            filing.note_first(connection, &records)?;
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

/// Statements of a batch, looked up once.
struct Outcomes<'a> {
    first: CachedStatement<'a>,
    outcome: CachedStatement<'a>,
    attempt: CachedStatement<'a>,
}

impl<'a> Outcomes<'a> {
    fn prepare(connection: &'a Connection) -> rusqlite::Result<Self> {
        Ok(Outcomes {
            first: connection.prepare_cached(include_str!("sqlite/record_first.sql"))?,
            outcome: connection.prepare_cached(include_str!("sqlite/record_outcome.sql"))?,
            attempt: connection.prepare_cached(include_str!("sqlite/insert_attempt.sql"))?,
        })
    }

    /// False if it does not count any more.
    fn write(&mut self, record: &Record, now: i64) -> rusqlite::Result<bool> {
        let spent = i64::from(record.attempt.is_some());
        let mut apart = record.attempt.as_ref();
        let recorded = match &record.in_flight {
            Some(in_flight) => {
                let within = apart.take_if(|attempt| is_short(attempt));
                self.first.execute(params![
                    record.delivery,
                    record.tenant,
                    in_flight.event_uid,
                    in_flight.subscription,
                    record.status.as_str(),
                    spent,
                    record.fence,
                    record.due_in.map(milliseconds),
                    record.last_error,
                    milliseconds(in_flight.since.elapsed()),
                    now,
                    within.map(|attempt| milliseconds(attempt.duration)),
                    within.and_then(|attempt| attempt.response_status),
                    within.and_then(|attempt| attempt.response_headers.as_deref()),
                    within.and_then(|attempt| attempt.response_body.as_deref()),
                    within.and_then(|attempt| attempt.error_class),
                    within.and_then(|attempt| attempt.error.as_deref()),
                ])?
            }
            None => self.outcome.execute(params![
                record.delivery,
                record.fence,
                record.status.as_str(),
                spent,
                1 - spent,
                record.due_in.map(milliseconds),
                record.last_error,
                now,
            ])?,
        };
        if recorded == 0 {
            return Ok(false);
        }
        if let Some(attempt) = apart {
            self.attempt.execute(params![
                id::new("att"),
                record.delivery,
                milliseconds(attempt.duration),
                attempt.response_status,
                attempt.response_headers,
                attempt.response_body.as_deref(),
                attempt.error_class,
                attempt.error,
                record.tenant,
                now,
            ])?;
        }
        Ok(true)
    }
}

/// Does it fit into the row of its delivery? A page holds a few rows at least.
fn is_short(attempt: &NewAttempt) -> bool {
    let NewAttempt { response_headers, response_body, error, .. } = attempt;
    let texts = [response_headers, error].map(|text| text.as_ref().map_or(0, String::len));
    texts.iter().sum::<usize>() + response_body.as_ref().map_or(0, Bytes::len) <= SHORT
}

/// Payloads were read as JSON, so they are UTF-8.
fn text(data: &Bytes) -> &str {
    std::str::from_utf8(data).unwrap_or_default()
}

pub(super) fn to_ms(time: OffsetDateTime) -> i64 {
    time.unix_timestamp() * 1000 + i64::from(time.millisecond())
}

fn from_ms(ms: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}
