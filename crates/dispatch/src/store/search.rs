//! Lists of events, deliveries and attempts: newest first, by any condition, a page at a time.
//!
//! Each list walks the index that meets what is asked for most directly, and asks the rest of each row. Ids sort by time, so
//! a time is also a range of ids.

#[cfg(test)]
mod tests;

use platform::{
    db::{Error, Row, Step, Value},
    id, query,
};
use serde_json::value::RawValue;
use time::OffsetDateTime;

use super::{
    SKEW, Store, first_id,
    records::{delivery, event, most_urgent},
};
use crate::{
    delivery::Status,
    job::{Progress, Selection},
    model::{Attempt, AttemptError, Delivery, Event, FoundAttempt},
};

/// A page is in memory until the caller has it all: it ends early where its payloads, or answers, hold so much.
pub const MOST_BYTES: usize = 8 << 20;
/// Rows with payloads are fetched so many at a time, so that a page can end.
const AT_A_TIME: u32 = 10;
/// Sorts behind every id.
const END: &str = "~";

/// Which deliveries to list. What is `None` is not asked.
#[derive(Clone, Debug, Default)]
pub struct DeliveryFilter {
    pub status: Option<Status>,
    pub subscription: Option<String>,
    pub event_uid: Option<String>,
    pub event_type: Option<String>,
    pub since: Option<OffsetDateTime>,
    pub until: Option<OffsetDateTime>,
}

/// Which events to list.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    pub event_type: Option<String>,
    pub since: Option<OffsetDateTime>,
    pub until: Option<OffsetDateTime>,
}

/// The index that a list of deliveries walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Along {
    Tenant,
    Subscription,
    Event,
    Status,
    Waiting,
    Type,
}

impl DeliveryFilter {
    fn along(&self) -> Along {
        match self {
            DeliveryFilter { event_uid: Some(_), .. } => Along::Event,
            DeliveryFilter { status: Some(status), .. } if status.is_rare() => Along::Status,
            DeliveryFilter { subscription: Some(_), .. } => Along::Subscription,
            DeliveryFilter { status: Some(Status::Pending | Status::Processing), .. } => Along::Waiting,
            DeliveryFilter { event_type: Some(_), .. } => Along::Type,
            _ => Along::Tenant,
        }
    }

    /// Everything but the range of ids.
    fn values(&self, tenant: &str) -> [Value; 7] {
        [
            tenant.into(),
            self.status.map(Status::as_str).into(),
            self.subscription.as_deref().into(),
            self.event_uid.as_deref().into(),
            self.event_type.as_deref().into(),
            self.since.map_or(Value::Null, Value::Time),
            self.until.map_or(Value::Null, Value::Time),
        ]
    }
}

/// The ids from `since` to `until`, as far as times can tell, the last one excluded.
fn range(prefix: &str, since: Option<OffsetDateTime>, until: Option<OffsetDateTime>) -> (String, String) {
    let bound = |at| first_id(prefix, at);
    let first = since.and_then(|since| since.checked_sub(SKEW)).map(bound).unwrap_or_default();
    let last = until.and_then(|until| until.checked_add(SKEW)).map_or_else(|| END.to_owned(), bound);
    (first, last)
}

impl Store {
    /// Fewer than `limit` if they hold [`MOST_BYTES`].
    pub async fn events(
        &self,
        tenant: &str,
        filter: &EventFilter,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Event>, Error> {
        let (first, mut last) = range("evt", filter.since, filter.until);
        if let Some(after) = after {
            // A position, so that the list goes on where its event is gone meanwhile; an event may also be named by its id.
            let uid = self.uid_of_event(tenant, after).await?.unwrap_or_else(|| after.to_owned());
            last = last.min(uid);
        }
        if filter.event_type.is_some() {
            self.file().await;
        }
        let query = || if filter.event_type.is_some() { query!("list_events_by_type") } else { query!("list_events") };
        let mut events: Vec<Event> = Vec::new();
        let (mut bytes, mut left) = (0, limit);
        while bytes < MOST_BYTES && left > 0 {
            let most = AT_A_TIME.min(left);
            let step = query().with([
                tenant.into(),
                filter.event_type.as_deref().into(),
                filter.since.map_or(Value::Null, Value::Time),
                filter.until.map_or(Value::Null, Value::Time),
                first.as_str().into(),
                last.as_str().into(),
                most.into(),
            ]);
            let rows = self.database.fetch(step).await?;
            for row in &rows {
                let event = event(row);
                bytes += event.data.get().len();
                last.clone_from(&event.uid);
                events.push(event);
            }
            left = if rows.len() < most as usize { 0 } else { left - most };
        }
        // After the events were read: what is in flight of them is landed now.
        self.land().await;
        for event in &mut events {
            let statuses = self.database.fetch(query!("statuses_of_event").with([event.uid.as_str().into()])).await?;
            event.status = most_urgent(statuses.iter().filter_map(|row| Status::parse(&row.text("status"))));
        }
        Ok(events)
    }

    /// Ours, of an event that the caller knows by `id`.
    pub async fn uid_of_event(&self, tenant: &str, id: &str) -> Result<Option<String>, Error> {
        let rows = self.database.fetch(query!("uid_of_event").with([tenant.into(), id.into()])).await?;
        Ok(rows.first().map(|row| row.text("uid")))
    }

    pub async fn deliveries(
        &self,
        tenant: &str,
        filter: &DeliveryFilter,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Delivery>, Error> {
        self.land().await;
        if matches!(filter.along(), Along::Subscription | Along::Type) {
            self.file().await;
        }
        let step = match filter.along() {
            Along::Type => self.by_type(tenant, filter, after, limit).await?,
            along => {
                let (first, last) = range("dlv", filter.since, filter.until);
                let last = after.map_or(last.clone(), |after| last.min(after.to_owned()));
                by_id(along, filter.values(tenant), first, last, limit)
            }
        };
        Ok(self.database.fetch(step).await?.iter().map(delivery).collect())
    }

    async fn by_type(
        &self,
        tenant: &str,
        filter: &DeliveryFilter,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Step, Error> {
        let (mut first, mut last) = range("evt", filter.since, filter.until);
        if let Some(since) = filter.since
            && let Some(oldest) = self.oldest_made_late(tenant, since).await?
        {
            first = first.min(oldest);
        }
        let mut behind = String::new();
        if let Some(after) = after {
            let rows = self.database.fetch(query!("event_of_listed").with([tenant.into(), after.into()])).await?;
            match rows.first() {
                Some(row) => {
                    behind = row.text("event_uid");
                    last = last.min(format!("{behind}{END}"));
                }
                // It was purged since. Its event was made in the same moment, unless it was replayed: then some come again.
                None => behind = id::moment_of(after).map_or_else(String::new, |moment| format!("evt_{moment}")),
            }
        }
        let [a, b, c, d, e, f, g] = filter.values(tenant);
        let after = Value::Text(after.unwrap_or(END).to_owned());
        let range = [Value::Text(first), Value::Text(last), limit.into(), after, Value::Text(behind)];
        let [first, last, limit, after, behind] = range;
        Ok(query!("list_deliveries_by_type").with([a, b, c, d, e, f, g, first, last, limit, after, behind]))
    }

    /// A delivery is about as old as its event, unless a replay made what was missing. Where one did since then: the first id that the
    /// event of such a delivery can have.
    async fn oldest_made_late(&self, tenant: &str, since: OffsetDateTime) -> Result<Option<String>, Error> {
        let rows = self.database.fetch(query!("replays_of_missing").with([tenant.into(), Value::Time(since)])).await?;
        let made_some = rows.iter().filter(|row| {
            let progress = serde_json::from_str(&row.text("progress"));
            progress.is_ok_and(|progress: Progress| progress.counts.created > 0)
        });
        let selections = made_some.filter_map(|row| serde_json::from_str(&row.text("selection")).ok());
        let oldest = selections.filter_map(|selection: Selection| selection.since?.checked_sub(SKEW)).min();
        Ok(oldest.map(|oldest| first_id("evt", oldest)))
    }

    /// Of one delivery, the last first.
    pub async fn attempts(
        &self,
        tenant: &str,
        delivery: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Attempt>, Error> {
        let step = query!("list_attempts").with([tenant.into(), delivery.into(), after.into(), limit.into()]);
        Ok(self.database.fetch(step).await?.iter().map(attempt).collect())
    }

    /// The attempts of these deliveries, in the order of the deliveries, the last attempt of each first.
    pub async fn attempts_of(
        &self,
        tenant: &str,
        deliveries: &[Delivery],
        class: Option<&str>,
    ) -> Result<Vec<FoundAttempt>, Error> {
        let ids: Vec<&str> = deliveries.iter().map(|delivery| delivery.id.as_str()).collect();
        let ids = Value::Text(serde_json::to_string(&ids).unwrap_or_default());
        let rows =
            self.database.fetch(query!("attempts_of_deliveries").with([tenant.into(), ids, class.into()])).await?;
        let of = |delivery: &Delivery| {
            let theirs = rows.iter().filter(|row| row.text("delivery_id") == delivery.id);
            theirs.map(|row| FoundAttempt::new(delivery, attempt(row))).collect::<Vec<_>>()
        };
        Ok(deliveries.iter().flat_map(of).collect())
    }
}

fn by_id(along: Along, values: [Value; 7], first: String, last: String, limit: u32) -> Step {
    let query = match along {
        Along::Tenant | Along::Type => query!("list_deliveries"),
        Along::Subscription => query!("list_deliveries_of_subscription"),
        Along::Event => query!("list_deliveries_of_event"),
        Along::Status => query!("list_deliveries_by_status"),
        Along::Waiting => query!("list_waiting_deliveries"),
    };
    let [a, b, c, d, e, f, g] = values;
    query.with([a, b, c, d, e, f, g, Value::Text(first), Value::Text(last), limit.into()])
}

fn attempt(row: &Row) -> Attempt {
    let error = row.optional_text("error_class").map(|class| AttemptError { class, sentence: row.text("error") });
    Attempt {
        id: row.text("id"),
        number: row.int("number"),
        started_at: row.time("started_at"),
        duration_ms: row.int("duration_ms"),
        response_status: row.optional_int("response_status"),
        response_headers: row.optional_text("response_headers").and_then(|json| RawValue::from_string(json).ok()),
        response_body: row.optional_bytes("response_body").map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        error,
    }
}
