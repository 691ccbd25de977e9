//! The hot path on PostgreSQL: arrays in, one statement a batch, no transaction open while a call runs.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::try_join_all;
use platform::{
    db::{Error, postgres::Postgres},
    id,
    problem::Chain,
};
use time::OffsetDateTime;
use tokio_postgres::{Row, types::ToSql};

use super::{
    Accepted, Claimed, Found, InFlight, KnownEvent, Lease, NewAttempt, NewEvent, Record,
    flights::{EXPIRED, FREE, MOST, NewFlight, flights_of, is_in_flight, since},
    milliseconds,
};

pub(super) async fn take_in(database: &Postgres, events: &[NewEvent], lease: &Lease) -> Result<Vec<Accepted>, Error> {
    // Two batches with the same ids must take their locks in one order. The first of two equal ids in a batch wins.
    let mut order: Vec<&NewEvent> = events.iter().collect();
    order.sort_by(|a, b| (&a.tenant, &a.id).cmp(&(&b.tenant, &b.id)));
    order.dedup_by(|later, first| later.tenant == first.tenant && later.id == first.id);

    let mut client = database.batch_client().await?;
    let transaction = client.transaction().await?;
    let fresh = insert_events(&transaction, &order).await?;
    // As they were sent: so they stand in their lines.
    insert_deliveries(&transaction, events.iter().filter(|event| fresh.contains_key(event.uid.as_str()))).await?;
    insert_flights(&transaction, &flights_of(events, |_, event| fresh.contains_key(event.uid.as_str()), lease)).await?;
    let known =
        if fresh.len() == events.len() { HashMap::new() } else { find_events(&transaction, events, &fresh).await? };
    transaction.commit().await?;
    let accepted = events.iter().map(|event| match fresh.get(event.uid.as_str()) {
        Some(at) => Accepted::New { at: *at },
        None => match known.get(&(event.tenant.to_string(), event.id.clone())) {
            Some((hash, at)) if *hash == event.hash => Accepted::Repeat { at: *at },
            _ => Accepted::Conflict,
        },
    });
    Ok(accepted.collect())
}

type Transaction<'a> = deadpool_postgres::Transaction<'a>;

pub(super) async fn insert_events(
    transaction: &Transaction<'_>,
    events: &[&NewEvent],
) -> Result<HashMap<String, OffsetDateTime>, Error> {
    let statement = transaction.prepare_cached(include_str!("postgres/insert_events.sql")).await?;
    let tenants = column(events, |event| &*event.tenant);
    let ids = column(events, |event| event.id.as_str());
    let uids = column(events, |event| event.uid.as_str());
    let hashes = column(events, |event| event.hash.as_slice());
    let types = column(events, |event| event.event_type.as_str());
    let sources = column(events, |event| event.source.as_deref());
    let ordering_keys = column(events, |event| event.ordering_key.as_deref());
    let deliver_ats = column(events, |event| event.deliver_at);
    let created_ats = column(events, |event| event.created_at);
    let traces = column(events, |event| event.trace.as_deref());
    let data = column(events, |event| std::str::from_utf8(&event.data).unwrap_or_default());
    let of_keys: [&(dyn ToSql + Sync); 4] = [&tenants, &ids, &uids, &hashes];
    let of_events: [&(dyn ToSql + Sync); 7] =
        [&types, &sources, &ordering_keys, &deliver_ats, &data, &created_ats, &traces];
    let rows = transaction.query(&statement, &[&of_keys[..], &of_events].concat()).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// Those that have rows from the start.
async fn insert_deliveries(
    transaction: &Transaction<'_>,
    events: impl Iterator<Item = &NewEvent>,
) -> Result<(), Error> {
    let deliveries = events.flat_map(|event| event.deliveries.iter().map(move |delivery| (event, delivery)));
    let deliveries: Vec<_> = deliveries.filter(|(event, delivery)| !is_in_flight(event, delivery)).collect();
    if deliveries.is_empty() {
        return Ok(());
    }
    let statement = transaction.prepare_cached(include_str!("postgres/insert_deliveries.sql")).await?;
    let ids = column(&deliveries, |(_, delivery)| delivery.id.as_str());
    let tenants = column(&deliveries, |(event, _)| &*event.tenant);
    let uids = column(&deliveries, |(event, _)| event.uid.as_str());
    let subscriptions = column(&deliveries, |(_, delivery)| &*delivery.subscription);
    let ordering_keys = column(&deliveries, |(_, delivery)| delivery.ordering_key.as_deref());
    let deliver_ats = column(&deliveries, |(event, _)| event.deliver_at);
    transaction.execute(&statement, &[&ids, &tenants, &uids, &subscriptions, &ordering_keys, &deliver_ats]).await?;
    Ok(())
}

async fn insert_flights(transaction: &Transaction<'_>, flights: &[NewFlight<'_>]) -> Result<(), Error> {
    if flights.is_empty() {
        return Ok(());
    }
    let statement = transaction.prepare_cached(include_str!("postgres/insert_flight.sql")).await?;
    let statement = &statement;
    // Together, so that they are on their way at once.
    try_join_all(flights.iter().map(async |NewFlight { id, lease, deliveries }| {
        let (owner, length) = lease.map(|lease| (&*lease.owner, milliseconds(lease.length))).unzip();
        let ids = column(deliveries, |(_, delivery)| delivery.id.as_str());
        let tenants = column(deliveries, |(event, _)| &*event.tenant);
        let uids = column(deliveries, |(event, _)| event.uid.as_str());
        let subscriptions = column(deliveries, |(_, delivery)| &*delivery.subscription);
        transaction.execute(statement, &[id, &owner, &length, &ids, &tenants, &uids, &subscriptions]).await
    }))
    .await?;
    Ok(())
}

/// Lands a few flights of those that were made until `newest`. Returns how many.
pub(super) async fn land(database: &Postgres, which: &str, newest: OffsetDateTime) -> Result<usize, Error> {
    land_with(&database.client().await?, which, newest).await
}

async fn land_with<C>(client: &C, which: &str, newest: OffsetDateTime) -> Result<usize, Error>
where
    C: deadpool_postgres::GenericClient + Sync,
{
    let statement = client.prepare_cached(include_str!("postgres/land_flights.sql")).await?;
    let landed: i64 = client.query_one(&statement, &[&which, &newest]).await?.get(0);
    Ok(usize::try_from(landed).unwrap_or_default())
}

type Known = HashMap<(String, String), (Vec<u8>, OffsetDateTime)>;

async fn find_events(
    transaction: &Transaction<'_>,
    events: &[NewEvent],
    fresh: &HashMap<String, OffsetDateTime>,
) -> Result<Known, Error> {
    let statement = transaction.prepare_cached(include_str!("postgres/find_events.sql")).await?;
    let old: Vec<&NewEvent> = events.iter().filter(|event| !fresh.contains_key(event.uid.as_str())).collect();
    let (tenants, ids) = (column(&old, |event| &*event.tenant), column(&old, |event| event.id.as_str()));
    let rows = transaction.query(&statement, &[&tenants, &ids]).await?;
    let known = rows.iter().map(|row| {
        // The event itself may have been dropped with its day; its key is kept a little longer.
        let at: Option<OffsetDateTime> = row.get(3);
        ((row.get(0), row.get(1)), (row.get(2), at.unwrap_or(OffsetDateTime::UNIX_EPOCH)))
    });
    Ok(known.collect())
}

pub(super) async fn known_events(
    database: &Postgres,
    keys: &[(Arc<str>, String)],
) -> Result<Vec<Option<KnownEvent>>, Error> {
    let client = database.batch_client().await?;
    let statement = client.prepare_cached(include_str!("postgres/find_events.sql")).await?;
    let (tenants, ids) = (column(keys, |(tenant, _)| &**tenant), column(keys, |(_, id)| id.as_str()));
    let rows = client.query(&statement, &[&tenants, &ids]).await?;
    let mut known: HashMap<(&str, &str), KnownEvent> = HashMap::new();
    for row in &rows {
        let at: Option<OffsetDateTime> = row.get(3);
        let event = KnownEvent { hash: row.get(2), at: at.unwrap_or(OffsetDateTime::UNIX_EPOCH) };
        known.insert((row.get(0), row.get(1)), event);
    }
    Ok(keys.iter().map(|(tenant, id)| known.get(&(&**tenant, id.as_str())).cloned()).collect())
}

fn column<'a, T, V>(rows: &'a [T], value: impl Fn(&'a T) -> V) -> Vec<V> {
    rows.iter().map(value).collect()
}

pub(super) async fn claim(database: &Postgres, lease: &Lease, limit: u32, room: u32) -> Result<Found, Error> {
    let client = database.batch_client().await?;
    let any_expired = client.prepare_cached(include_str!("postgres/any_expired.sql")).await?;
    let due = client.prepare_cached(include_str!("postgres/claim_due.sql")).await?;
    let flights = client.prepare_cached(include_str!("postgres/claim_flights.sql")).await?;
    let (owner, length, limit, room) = (&*lease.owner, milliseconds(lease.length), i64::from(limit), i64::from(room));
    let any_expired: bool = client.query_one(&any_expired, &[]).await?.get(0);
    let landed = if any_expired { land_with(&client, EXPIRED, end_of_time()).await? } else { 0 };
    let rows = client.query(&due, &[&owner, &length, &limit]).await?;
    let (claimed_rows, put_off): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.get::<_, i64>("behind") == 0);
    let first_of_lines = column(&put_off, |row| row.get("id"));
    move_on(&client, include_str!("postgres/heads_again.sql"), &first_of_lines).await;
    let behind: i64 = put_off.iter().map(|row| row.get::<_, i64>("behind")).sum();
    let is_all = landed == 0 && claimed_rows.len() as i64 + behind < limit;
    let mut claimed: Vec<Claimed> = claimed_rows.into_iter().map(claimed).collect();
    let left = room - claimed.len() as i64;
    let in_flight = match client.query(&flights, &[&owner, &length, &left]).await {
        Ok(in_flight) => in_flight,
        // What was claimed already is this process's, whatever became of the rest.
        Err(error) if !claimed.is_empty() => {
            tracing::warn!(error = %Chain(&error), "Flights could not be claimed; trying again.");
            return Ok(Found { claimed, is_all: false });
        }
        Err(error) => return Err(error.into()),
    };
    // One that does not fit goes by ones. Where each would fit there is none, or another claimer is just taking it.
    let is_too_large = in_flight.is_empty() && left < MOST as i64 && land_with(&client, FREE, end_of_time()).await? > 0;
    let is_all = is_all && in_flight.is_empty() && !is_too_large;
    claimed.extend(in_flight.iter().map(claimed_in_flight));
    Ok(Found { claimed, is_all })
}

/// No flight is made after it.
fn end_of_time() -> OffsetDateTime {
    time::macros::datetime!(9999-12-31 0:00 UTC)
}

fn claimed_in_flight(row: &Row) -> Claimed {
    let subscription: Arc<str> = Arc::from(row.get::<_, &str>("subscription_id"));
    Claimed {
        id: row.get("id"),
        tenant: Arc::from(row.get::<_, &str>("tenant_id")),
        subscription: Arc::clone(&subscription),
        event_id: row.get("event_id"),
        event_type: row.get("type"),
        event_at: row.get("created_at"),
        data: Bytes::from(row.get::<_, String>("data")),
        trace: row.get::<_, Option<&str>>("trace").map(Arc::from),
        attempts: 0,
        is_manual: false,
        is_operational: row.get("is_operational"),
        is_ordered: false,
        fence: 1,
        in_flight: Some(InFlight {
            flight: Arc::from(row.get::<_, &str>("flight")),
            event_uid: row.get("event_uid"),
            subscription,
            since: since(row.get("age_ms")),
        }),
    }
}

fn claimed(row: &Row) -> Claimed {
    Claimed {
        id: row.get("id"),
        tenant: Arc::from(row.get::<_, &str>("tenant_id")),
        subscription: Arc::from(row.get::<_, &str>("subscription_id")),
        event_id: row.get("event_id"),
        event_type: row.get("type"),
        event_at: row.get("created_at"),
        data: Bytes::from(row.get::<_, String>("data")),
        trace: row.get::<_, Option<&str>>("trace").map(Arc::from),
        attempts: u32::try_from(row.get::<_, i32>("attempts")).unwrap_or_default(),
        is_manual: row.get("is_manual"),
        is_operational: row.get("is_operational"),
        is_ordered: row.get("is_ordered"),
        fence: row.get("fence"),
        in_flight: None,
    }
}

pub(super) async fn renew(database: &Postgres, held: &[(String, i64)], length: Duration) -> Result<(), Error> {
    let client = database.batch_client().await?;
    let statement = client.prepare_cached(include_str!("postgres/renew_leases.sql")).await?;
    let (ids, fences) = (column(held, |(id, _)| id.as_str()), column(held, |(_, fence)| *fence));
    client.execute(&statement, &[&ids, &fences, &milliseconds(length)]).await?;
    Ok(())
}

pub(super) async fn record(database: &Postgres, records: &[Record]) -> Result<usize, Error> {
    let mut client = database.batch_client().await?;
    let written = if records.iter().all(|record| record.raises.is_none()) {
        write(&client, records).await?
    } else {
        let transaction = client.transaction().await?;
        let written = write(&transaction, records).await?;
        let raised = records.iter().filter(|record| written.contains(&(record.delivery.clone(), record.fence)));
        let raised: Vec<&NewEvent> = raised.filter_map(|record| record.raises.as_deref()).collect();
        raise(&transaction, &raised).await?;
        transaction.commit().await?;
        written
    };
    let ended: Vec<&str> =
        records.iter().filter(|record| record.ends_a_head()).map(|record| record.delivery.as_str()).collect();
    move_on(&client, include_str!("postgres/next_in_line.sql"), &ended).await;
    Ok(written.len())
}

/// Makes due what is at the head of these deliveries' lines. What was claimed or written before stays so, whatever becomes of
/// this.
async fn move_on(client: &deadpool_postgres::Object, statement: &str, of: &[&str]) {
    if of.is_empty() {
        return;
    }
    let ids = serde_json::Value::from(of).to_string();
    let moved = async { client.execute(&client.prepare_cached(statement).await?, &[&ids]).await };
    if let Err(error) = moved.await {
        tracing::warn!(
            error = %Chain(&error), lines = of.len(),
            "Ordered lines were not moved on; their heads wait up to a minute."
        );
    }
}

/// Inserts events of our own, with deliveries that wait to be claimed. One that is known already is left alone.
pub(super) async fn raise(transaction: &Transaction<'_>, events: &[&NewEvent]) -> Result<(), Error> {
    if events.is_empty() {
        return Ok(());
    }
    let fresh = insert_events(transaction, events).await?;
    let nobody = Lease::nobody();
    for event in events.iter().filter(|event| fresh.contains_key(event.uid.as_str())) {
        insert_deliveries(transaction, std::iter::once(*event)).await?;
        insert_flights(transaction, &flights_of(std::slice::from_ref(*event), |_, _| true, &nobody)).await?;
    }
    Ok(())
}

/// Returns the ids and fences of those that counted.
async fn write<C>(client: &C, records: &[Record]) -> Result<HashSet<(String, i64)>, Error>
where
    C: deadpool_postgres::GenericClient + Sync,
{
    // As landings and renewals have it: two that write the same rows must not wait for each other.
    let mut records: Vec<&Record> = records.iter().collect();
    records.sort_unstable_by(|a, b| a.delivery.cmp(&b.delivery));
    let (first, later): (Vec<&Record>, Vec<&Record>) =
        records.into_iter().partition(|record| record.in_flight.is_some());
    let in_flight: Vec<&InFlight> = first.iter().filter_map(|record| record.in_flight.as_ref()).collect();
    let tenants = column(&first, |record| &*record.tenant);
    let uids = column(&in_flight, |in_flight| in_flight.event_uid.as_str());
    let subscriptions = column(&in_flight, |in_flight| &*in_flight.subscription);
    let ages = column(&in_flight, |in_flight| milliseconds(in_flight.since.elapsed()));
    let of_rows: [&(dyn ToSql + Sync); 4] = [&tenants, &uids, &subscriptions, &ages];
    let mut written = write_all(client, include_str!("postgres/record_first.sql"), &first, &of_rows).await?;
    let attempt_ids = column(&later, |record| record.attempt.is_some().then(|| id::new("att")));
    written.extend(write_all(client, include_str!("postgres/record_outcomes.sql"), &later, &[&attempt_ids]).await?);
    Ok(written.iter().map(|row| (row.get(0), row.get(1))).collect())
}

async fn write_all<C>(
    client: &C,
    statement: &str,
    records: &[&Record],
    rest: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, Error>
where
    C: deadpool_postgres::GenericClient + Sync,
{
    if records.is_empty() {
        return Ok(Vec::new());
    }
    let attempts: Vec<Option<&NewAttempt>> = column(records, |record| record.attempt.as_ref());
    let ids = column(records, |record| record.delivery.as_str());
    let fences = column(records, |record| record.fence);
    let statuses = column(records, |record| record.status.as_str());
    let spent = column(records, |record| i32::from(record.attempt.is_some()));
    let due = column(records, |record| record.due_in.map(milliseconds));
    let errors = column(records, |record| record.last_error.as_deref());
    let durations = column(&attempts, |attempt| attempt.map(|attempt| milliseconds(attempt.duration)));
    let answers = column(&attempts, |attempt| (*attempt)?.response_status.map(i32::from));
    let headers = column(&attempts, |attempt| (*attempt)?.response_headers.as_deref());
    let bodies = column(&attempts, |attempt| (*attempt)?.response_body.as_deref());
    let classes = column(&attempts, |attempt| (*attempt)?.error_class);
    let sentences = column(&attempts, |attempt| (*attempt)?.error.as_deref());
    let outcome: [&(dyn ToSql + Sync); 6] = [&ids, &fences, &statuses, &spent, &due, &errors];
    let attempt: [&(dyn ToSql + Sync); 6] = [&durations, &answers, &headers, &bodies, &classes, &sentences];
    let statement = client.prepare_cached(statement).await?;
    Ok(client.query(&statement, &[&outcome[..], &attempt, rest].concat()).await?)
}
