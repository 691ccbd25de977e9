//! A batch's changes on PostgreSQL: arrays in, one statement a kind of change, one transaction.

use platform::db::{Error, postgres::Postgres};

use super::{Changed, Changes, Creation, Held, Requeue, json, note};
use crate::{job::Progress, store::milliseconds};

type Transaction<'a> = deadpool_postgres::Transaction<'a>;

pub(super) async fn commit(
    database: &Postgres,
    held: &Held,
    changes: &Changes,
    mut progress: Progress,
    is_done: bool,
) -> Result<Option<Progress>, Error> {
    let mut client = database.client().await?;
    let transaction = client.transaction().await?;
    let hold = transaction.prepare_cached(include_str!("postgres/hold_job.sql")).await?;
    if transaction.query_opt(&hold, &[&held.id, &held.fence]).await?.is_none() {
        return Ok(None);
    }
    let changed = Changed {
        requeued: requeue(&transaction, &changes.requeue).await?,
        created: create(&transaction, &changes.create).await?,
        cancelled: cancel(&transaction, &changes.cancel).await?,
        deleted: delete(&transaction, &changes.delete).await?,
        events_deleted: delete_bare_events(&transaction, &changes.bare_events).await?,
    };
    note(&mut progress, changes, &changed);
    let save = transaction.prepare_cached(include_str!("postgres/save_progress.sql")).await?;
    transaction.execute(&save, &[&held.id, &held.fence, &json(&progress), &milliseconds(held.lease), &is_done]).await?;
    transaction.commit().await?;
    Ok(Some(progress))
}

async fn requeue(transaction: &Transaction<'_>, all: &[Requeue]) -> Result<u64, Error> {
    if all.is_empty() {
        return Ok(0);
    }
    let statement = transaction.prepare_cached(include_str!("postgres/requeue.sql")).await?;
    let ids: Vec<&str> = all.iter().map(|one| one.id.as_str()).collect();
    let fences: Vec<i64> = all.iter().map(|one| one.fence).collect();
    let delays: Vec<i64> = all.iter().map(|one| milliseconds(one.delay)).collect();
    Ok(transaction.execute(&statement, &[&ids, &fences, &delays]).await?)
}

async fn create(transaction: &Transaction<'_>, all: &[Creation]) -> Result<u64, Error> {
    if all.is_empty() {
        return Ok(0);
    }
    let statement = transaction.prepare_cached(include_str!("postgres/create_deliveries.sql")).await?;
    let ids: Vec<&str> = all.iter().map(|one| one.id.as_str()).collect();
    let events: Vec<&str> = all.iter().map(|one| one.event_uid.as_str()).collect();
    let subscriptions: Vec<&str> = all.iter().map(|one| &*one.subscription).collect();
    let keys: Vec<Option<&str>> = all.iter().map(|one| one.ordering_key.as_deref()).collect();
    let delays: Vec<i64> = all.iter().map(|one| milliseconds(one.delay)).collect();
    Ok(transaction.execute(&statement, &[&ids, &events, &subscriptions, &keys, &delays]).await?)
}

async fn cancel(transaction: &Transaction<'_>, all: &[(String, i64)]) -> Result<u64, Error> {
    if all.is_empty() {
        return Ok(0);
    }
    let statement = transaction.prepare_cached(include_str!("postgres/call_off.sql")).await?;
    let (ids, fences) = columns(all);
    Ok(transaction.execute(&statement, &[&ids, &fences]).await?)
}

async fn delete(transaction: &Transaction<'_>, all: &[(String, i64)]) -> Result<u64, Error> {
    if all.is_empty() {
        return Ok(0);
    }
    let statement = transaction.prepare_cached(include_str!("postgres/purge_deliveries.sql")).await?;
    let (ids, fences) = columns(all);
    Ok(transaction.query(&statement, &[&ids, &fences]).await?.len() as u64)
}

async fn delete_bare_events(transaction: &Transaction<'_>, uids: &[String]) -> Result<u64, Error> {
    if uids.is_empty() {
        return Ok(0);
    }
    let statement = transaction.prepare_cached(include_str!("postgres/purge_events.sql")).await?;
    Ok(transaction.query(&statement, &[&uids]).await?.len() as u64)
}

fn columns(all: &[(String, i64)]) -> (Vec<&str>, Vec<i64>) {
    all.iter().map(|(id, fence)| (id.as_str(), *fence)).unzip()
}
