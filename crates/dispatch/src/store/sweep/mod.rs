//! One batch of a job: look at so many rows, then change those that are chosen and move the cursor, all in one commit.
//!
//! Looking changes nothing and locks nothing. A change is made only to a row that still has the fence it was seen with,
//! and only while the job has its own.

mod postgres;
mod sqlite;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use platform::{
    db::{Database, Error, Row, Value},
    query,
};
use time::OffsetDateTime;

use super::{SKEW, Store, first_id, flights::ALL};
use crate::{
    delivery::Status,
    job::{Progress, selection::Walk},
};

/// A delivery that a job may be about.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub id: String,
    pub fence: i64,
    pub status: Status,
    pub subscription: String,
    pub event_uid: String,
    /// `None` if the event is gone.
    pub event_type: Option<String>,
    pub created_at: OffsetDateTime,
    pub updated_at: OffsetDateTime,
}

/// An event and who has a delivery of it.
#[derive(Clone, Debug)]
pub struct OldEvent {
    pub uid: String,
    pub id: String,
    pub event_type: String,
    pub source: Option<String>,
    pub ordering_key: Option<String>,
    /// Where it was asked for.
    pub data: Option<String>,
    pub created_at: OffsetDateTime,
    pub receivers: Vec<String>,
}

/// What a walk covers: ids from `since` to `until`, as far as times can tell, and after the cursor.
#[derive(Clone, Debug)]
pub struct Span<'a> {
    pub tenant: &'a str,
    pub cursor: Option<&'a str>,
    pub since: Option<OffsetDateTime>,
    pub until: OffsetDateTime,
    pub limit: u32,
}

impl Span<'_> {
    /// Tenant, first and last id, and how many.
    fn values(&self, prefix: &str) -> [Value; 4] {
        let first = self.since.map(|since| first_id(prefix, since - SKEW)).unwrap_or_default();
        let first = self.cursor.map_or(first, str::to_owned);
        [self.tenant.into(), Value::Text(first), Value::Text(first_id(prefix, self.until + SKEW)), self.limit.into()]
    }
}

/// What a batch changes.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    pub requeue: Vec<Requeue>,
    pub create: Vec<Creation>,
    /// Ids and fences.
    pub cancel: Vec<(String, i64)>,
    pub delete: Vec<(String, i64)>,
    /// Events that go if nothing is left of them.
    pub bare_events: Vec<String>,
}

/// A delivery that is due again after a while.
#[derive(Clone, Debug)]
pub struct Requeue {
    pub id: String,
    pub fence: i64,
    pub delay: Duration,
}

/// A delivery that an event has not had.
#[derive(Clone, Debug)]
pub struct Creation {
    pub id: String,
    pub event_uid: String,
    pub subscription: Arc<str>,
    pub ordering_key: Option<String>,
    pub delay: Duration,
}

/// A job that this process works on, until its lease ends.
#[derive(Clone, Debug)]
pub struct Held {
    pub id: String,
    pub fence: i64,
    pub lease: Duration,
}

impl Store {
    /// The next deliveries of a walk.
    pub async fn look_at_deliveries(
        &self,
        walk: &Walk,
        span: &Span<'_>,
        named: &[String],
    ) -> Result<Vec<Candidate>, Error> {
        self.land_some(ALL).await?;
        if let Walk::Subscription(_) = walk {
            self.file().await;
        }
        let [tenant, first, last, limit] = span.values("dlv");
        let step = match walk {
            Walk::Tenant | Walk::Events => query!("look_at_tenant").with([tenant, first, last, limit]),
            Walk::Subscription(id) => {
                query!("look_at_subscription").with([tenant, first, last, limit, id.as_str().into()])
            }
            Walk::Status(status) => query!("look_at_status").with([tenant, first, last, limit, status.as_str().into()]),
            Walk::Named => {
                let ids = serde_json::to_string(named).unwrap_or_default();
                query!("look_at_named").with([tenant, first, last, limit, Value::Text(ids)])
            }
        };
        Ok(self.database.fetch(step).await?.iter().map(candidate).collect())
    }

    /// The next events of a walk.
    pub async fn look_at_events(&self, span: &Span<'_>, needs_data: bool) -> Result<Vec<OldEvent>, Error> {
        self.land_some(ALL).await?;
        let [tenant, first, last, limit] = span.values("evt");
        let step = query!("look_at_events").with([tenant, first, last, limit, Value::Bool(needs_data)]);
        Ok(self.database.fetch(step).await?.iter().map(old_event).collect())
    }

    /// Makes a batch's changes and moves the job on, in one commit. Returns the job's progress with what was really
    /// changed; `None`, and nothing is changed, if the job is no longer this process's.
    pub async fn commit_batch(
        &self,
        held: &Held,
        changes: Changes,
        progress: Progress,
        is_done: bool,
    ) -> Result<Option<Progress>, Error> {
        if !changes.delete.is_empty() || !changes.bare_events.is_empty() {
            self.land_some(ALL).await?;
        }
        let cancelled: Vec<String> = changes.cancel.iter().map(|(id, _)| id.clone()).collect();
        let progress = match &self.database {
            Database::Sqlite(database) => sqlite::commit(database, held.clone(), changes, progress, is_done).await?,
            Database::Postgres(database) => {
                database.in_time(postgres::commit(database, held, &changes, progress, is_done)).await?
            }
        };
        if progress.is_some() && !cancelled.is_empty() {
            self.move_lines_on(&cancelled).await?;
        }
        Ok(progress)
    }
}

/// Adds to `progress` what was changed; what was not, because another changed it first, was skipped.
fn note(progress: &mut Progress, changes: &Changes, changed: &Changed) {
    let counts = &mut progress.counts;
    counts.requeued += changed.requeued;
    counts.created += changed.created;
    counts.cancelled += changed.cancelled;
    counts.deleted += changed.deleted;
    counts.events_deleted += changed.events_deleted;
    let wanted = changes.requeue.len() + changes.cancel.len() + changes.delete.len();
    counts.skipped += (wanted as u64).saturating_sub(changed.requeued + changed.cancelled + changed.deleted);
}

/// How many rows a batch changed.
#[derive(Default)]
struct Changed {
    requeued: u64,
    created: u64,
    cancelled: u64,
    deleted: u64,
    events_deleted: u64,
}

fn json(progress: &Progress) -> String {
    serde_json::to_string(progress).expect("progress is plain data")
}

fn candidate(row: &Row) -> Candidate {
    Candidate {
        id: row.text("id"),
        fence: row.int("fence"),
        status: Status::parse(&row.text("status")).unwrap_or(Status::Processing),
        subscription: row.text("subscription_id"),
        event_uid: row.text("event_uid"),
        event_type: row.optional_text("event_type"),
        created_at: row.time("created_at"),
        updated_at: row.time("updated_at"),
    }
}

fn old_event(row: &Row) -> OldEvent {
    OldEvent {
        uid: row.text("uid"),
        id: row.text("id"),
        event_type: row.text("type"),
        source: row.optional_text("source"),
        ordering_key: row.optional_text("ordering_key"),
        data: row.optional_text("data"),
        created_at: row.time("created_at"),
        receivers: row.text("receivers").split_whitespace().map(str::to_owned).collect(),
    }
}
