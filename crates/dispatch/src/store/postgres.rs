//! The hot path on PostgreSQL: arrays in, one statement a batch, no transaction open while a call runs.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use platform::{
    db::{Error, postgres::Postgres},
    problem::Chain,
};
use time::OffsetDateTime;
use tokio_postgres::Row;

use super::{Accepted, Claimed, Found, KnownEvent, Lease, NewDelivery, NewEvent, Record, milliseconds};

pub(super) async fn take_in(database: &Postgres, events: &[NewEvent], lease: &Lease) -> Result<Vec<Accepted>, Error> {
    // Two batches with the same ids must take their locks in one order. The first of two equal ids in a batch wins.
    let mut order: Vec<&NewEvent> = events.iter().collect();
    order.sort_by(|a, b| (&a.tenant, &a.id).cmp(&(&b.tenant, &b.id)));
    order.dedup_by(|later, first| later.tenant == first.tenant && later.id == first.id);

    let mut client = database.batch_client().await?;
    let transaction = client.transaction().await?;
    let fresh = insert_events(&transaction, &order).await?;
    let deliveries = order.iter().filter(|event| fresh.contains_key(event.uid.as_str()));
    let deliveries: Vec<_> =
        deliveries.flat_map(|event| event.deliveries.iter().map(move |delivery| (*event, delivery))).collect();
    if !deliveries.is_empty() {
        insert_deliveries(&transaction, &deliveries, lease).await?;
    }
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
    let data = column(events, |event| std::str::from_utf8(&event.data).unwrap_or_default());
    let rows = transaction
        .query(
            &statement,
            &[&tenants, &ids, &uids, &hashes, &types, &sources, &ordering_keys, &deliver_ats, &data, &created_ats],
        )
        .await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

async fn insert_deliveries(
    transaction: &Transaction<'_>,
    deliveries: &[(&NewEvent, &NewDelivery)],
    lease: &Lease,
) -> Result<(), Error> {
    let statement = transaction.prepare_cached(include_str!("postgres/insert_deliveries.sql")).await?;
    let ids = column(deliveries, |(_, delivery)| delivery.id.as_str());
    let tenants = column(deliveries, |(event, _)| &*event.tenant);
    let uids = column(deliveries, |(event, _)| event.uid.as_str());
    let subscriptions = column(deliveries, |(_, delivery)| &*delivery.subscription);
    let ordering_keys = column(deliveries, |(_, delivery)| delivery.ordering_key.as_deref());
    let owners = column(deliveries, |(_, delivery)| delivery.place.as_ref().map(|_| &*lease.owner));
    let deliver_ats = column(deliveries, |(event, _)| event.deliver_at);
    let length = milliseconds(lease.length);
    transaction
        .execute(&statement, &[&ids, &tenants, &uids, &subscriptions, &ordering_keys, &owners, &deliver_ats, &length])
        .await?;
    Ok(())
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

pub(super) async fn claim(database: &Postgres, lease: &Lease, limit: u32) -> Result<Found, Error> {
    let client = database.batch_client().await?;
    let statement = client.prepare_cached(include_str!("postgres/claim_due.sql")).await?;
    let rows = client.query(&statement, &[&&*lease.owner, &milliseconds(lease.length), &i64::from(limit)]).await?;
    let (claimed_rows, put_off): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.get::<_, i64>("behind") == 0);
    let first_of_lines = column(&put_off, |row| row.get("id"));
    move_on(&client, include_str!("postgres/heads_again.sql"), &first_of_lines).await;
    let behind: i64 = put_off.iter().map(|row| row.get::<_, i64>("behind")).sum();
    let is_all = claimed_rows.len() as i64 + behind < i64::from(limit);
    Ok(Found { claimed: claimed_rows.into_iter().map(claimed).collect(), is_all })
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
        attempts: u32::try_from(row.get::<_, i32>("attempts")).unwrap_or_default(),
        is_manual: row.get("is_manual"),
        is_operational: row.get("is_operational"),
        is_ordered: row.get("is_ordered"),
        fence: row.get("fence"),
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
    let events = events.iter().filter(|event| fresh.contains_key(event.uid.as_str()));
    let deliveries: Vec<_> =
        events.flat_map(|event| event.deliveries.iter().map(move |delivery| (*event, delivery))).collect();
    insert_deliveries(transaction, &deliveries, &Lease::nobody()).await
}

/// Returns the ids and fences of those that counted.
async fn write<C>(client: &C, records: &[Record]) -> Result<HashSet<(String, i64)>, Error>
where
    C: deadpool_postgres::GenericClient + Sync,
{
    let statement = client.prepare_cached(include_str!("postgres/record_outcomes.sql")).await?;
    let attempt = |record: &Record| i32::from(record.attempt.is_some());
    let attempts = column(records, |record| record.attempt.as_ref());
    let ids = column(records, |record| record.delivery.as_str());
    let fences = column(records, |record| record.fence);
    let statuses = column(records, |record| record.status.as_str());
    let spent = column(records, attempt);
    let deferred = column(records, |record| 1 - attempt(record));
    let due = column(records, |record| record.due_in.map(milliseconds));
    let errors = column(records, |record| record.last_error.as_deref());
    let attempt_ids = column(&attempts, |attempt| attempt.map(|attempt| attempt.id.as_str()));
    let durations = column(&attempts, |attempt| attempt.map(|attempt| milliseconds(attempt.duration)));
    let answers = column(&attempts, |attempt| attempt.and_then(|attempt| attempt.response_status).map(i32::from));
    let headers = column(&attempts, |attempt| attempt.and_then(|attempt| attempt.response_headers.as_deref()));
    let bodies = column(&attempts, |attempt| attempt.and_then(|attempt| attempt.response_body.as_deref()));
    let classes = column(&attempts, |attempt| attempt.and_then(|attempt| attempt.error_class));
    let sentences = column(&attempts, |attempt| attempt.and_then(|attempt| attempt.error.as_deref()));
    let rows = client
        .query(
            &statement,
            &[
                &ids,
                &fences,
                &statuses,
                &spent,
                &deferred,
                &due,
                &errors,
                &attempt_ids,
                &durations,
                &answers,
                &headers,
                &bodies,
                &classes,
                &sentences,
            ],
        )
        .await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}
