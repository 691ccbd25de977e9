//! Records of the topic that could not become events: kept with their bytes and the reason, until an operator has seen
//! them or retention ends.

#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::BTreeSet, sync::Arc, time::Duration};

use platform::{
    db::{Database, Error, Row, postgres::Postgres},
    query,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use time::OffsetDateTime;

use super::{Store, milliseconds};

/// A record to be kept.
#[derive(Clone, Debug)]
pub struct NewRejected {
    pub id: String,
    pub tenant: Option<String>,
    pub topic: Arc<str>,
    pub partition: i32,
    pub offset: i64,
    /// When Kafka took it.
    pub at: OffsetDateTime,
    pub key: Option<Vec<u8>>,
    pub value: Vec<u8>,
    pub headers: Vec<(String, Vec<u8>)>,
    pub reason: &'static str,
    pub detail: String,
}

/// A record that is kept.
#[derive(Clone, Debug)]
pub struct Rejected {
    pub id: String,
    pub tenant: Option<String>,
    pub topic: String,
    pub partition: i64,
    pub offset: i64,
    pub at: OffsetDateTime,
    pub size: i64,
    pub headers: Box<RawValue>,
    pub reason: String,
    pub detail: String,
    pub created_at: OffsetDateTime,
}

/// A header as it is shown: text where it is text.
#[derive(Serialize, Deserialize)]
struct Shown<'a> {
    name: Cow<'a, str>,
    value: Cow<'a, str>,
}

impl Rejected {
    /// Its headers by their names, as far as they were text; `None` if the row is not as it was written.
    pub fn named_headers(&self) -> Option<Vec<(String, Vec<u8>)>> {
        let shown: Vec<Shown<'static>> = serde_json::from_str(self.headers.get()).ok()?;
        let named = shown.into_iter().map(|Shown { name, value }| (name.into_owned(), value.into_owned().into_bytes()));
        Some(named.collect())
    }
}

impl Store {
    /// Keeps records, all in one commit. One that is kept already stays as it is.
    pub async fn keep_rejected(&self, records: &[NewRejected]) -> Result<(), Error> {
        match &self.database {
            Database::Postgres(postgres) => postgres.in_time(insert(postgres, records)).await,
            Database::Sqlite(sqlite) => {
                let records = records.to_vec();
                sqlite
                    .write(move |connection| {
                        let mut insert = connection.prepare_cached(include_str!("sqlite/insert_rejected.sql"))?;
                        for record in &records {
                            let at = i64::try_from(record.at.unix_timestamp_nanos() / 1_000_000).unwrap_or(0);
                            insert.execute(rusqlite::params![
                                record.id,
                                record.tenant,
                                record.topic,
                                record.partition,
                                record.offset,
                                at,
                                record.key,
                                record.value,
                                headers(record),
                                record.reason,
                                detail(record),
                            ])?;
                        }
                        Ok(())
                    })
                    .await
            }
        }
    }

    /// The newest first. Without a tenant: everyone's.
    pub async fn rejected(
        &self,
        tenant: Option<&str>,
        reason: Option<&str>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Rejected>, Error> {
        let step = query!("list_rejected").with([tenant.into(), reason.into(), after.into(), limit.into()]);
        Ok(self.database.fetch(step).await?.iter().map(read).collect())
    }

    /// One record with its key and its bytes.
    pub async fn rejected_record(
        &self,
        tenant: Option<&str>,
        id: &str,
    ) -> Result<Option<(Rejected, Option<Vec<u8>>, Vec<u8>)>, Error> {
        let rows = self.database.fetch(query!("get_rejected").with([id.into(), tenant.into()])).await?;
        Ok(rows.first().map(|row| (read(row), row.optional_bytes("key"), row.bytes("value"))))
    }

    /// False if there is none.
    pub async fn delete_rejected(&self, tenant: Option<&str>, id: &str) -> Result<bool, Error> {
        let step = query!("delete_rejected").with([id.into(), tenant.into()]).must_match();
        Ok(self.database.transact([step]).await?.is_some())
    }

    /// Is there such a tenant? A record names its tenant itself, and no door was asked.
    pub async fn has_tenant(&self, tenant: &str) -> Result<bool, Error> {
        let tenants = tenancy::Store::new(self.database.clone());
        Ok(!tenants.tenants_of(&BTreeSet::from([tenant])).await?.is_empty())
    }

    /// Ends what is older than `retention`.
    pub async fn forget_rejected(&self, retention: Duration) -> Result<(), Error> {
        let step = query!("forget_rejected").with([milliseconds(retention).into()]);
        self.database.transact([step]).await.map(drop)
    }
}

async fn insert(postgres: &Postgres, records: &[NewRejected]) -> Result<(), Error> {
    let column = |value: fn(&NewRejected) -> String| records.iter().map(value).collect::<Vec<_>>();
    let client = postgres.client().await?;
    let statement = client.prepare_cached(include_str!("postgres/insert_rejected.sql")).await?;
    let ids = column(|record| record.id.clone());
    let tenants: Vec<_> = records.iter().map(|record| record.tenant.as_deref()).collect();
    let topics: Vec<_> = records.iter().map(|record| &*record.topic).collect();
    let partitions: Vec<_> = records.iter().map(|record| record.partition).collect();
    let offsets: Vec<_> = records.iter().map(|record| record.offset).collect();
    let times: Vec<_> = records.iter().map(|record| record.at).collect();
    let keys: Vec<_> = records.iter().map(|record| record.key.as_deref()).collect();
    let values: Vec<_> = records.iter().map(|record| record.value.as_slice()).collect();
    let reasons: Vec<_> = records.iter().map(|record| record.reason).collect();
    let (headers, details) = (column(headers), column(detail));
    client
        .execute(
            &statement,
            &[&ids, &tenants, &topics, &partitions, &offsets, &times, &keys, &values, &headers, &reasons, &details],
        )
        .await?;
    Ok(())
}

fn headers(record: &NewRejected) -> String {
    let shown = record
        .headers
        .iter()
        .map(|(name, value)| Shown { name: Cow::Borrowed(name.as_str()), value: String::from_utf8_lossy(value) });
    serde_json::to_string(&shown.collect::<Vec<_>>()).unwrap_or_else(|_| "[]".to_owned())
}

/// PostgreSQL's texts hold no NUL, and a parser's sentence may quote one.
fn detail(record: &NewRejected) -> String {
    record.detail.replace('\0', "\u{fffd}")
}

fn read(row: &Row) -> Rejected {
    Rejected {
        id: row.text("id"),
        tenant: row.optional_text("tenant_id"),
        topic: row.text("topic"),
        partition: row.int("partition_no"),
        offset: row.int("offset_no"),
        at: row.time("record_at"),
        size: row.int("size"),
        headers: RawValue::from_string(row.text("headers")).unwrap_or_default(),
        reason: row.text("reason"),
        detail: row.text("detail"),
        created_at: row.time("created_at"),
    }
}
