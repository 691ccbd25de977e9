//! Events, subscriptions, deliveries and attempts in the database.
//!
//! This file is the hot path, the same four operations on both databases: take events in, claim what is due, record
//! outcomes, give leases back. Each is one batch and one commit. `records` is everything else.

mod filing;
pub mod flights;
pub mod jobs;
mod only_worker;
#[cfg(test)]
mod plans;
mod postgres;
pub mod records;
pub mod rejected;
pub mod seals;
pub mod search;
mod server;
mod sqlite;
pub mod sweep;
#[cfg(test)]
pub(crate) mod tests;
pub mod transition;
mod upkeep;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use platform::{
    db::{Database, Error, Migrations, postgres::Postgres},
    id,
    problem::Chain,
};
use time::OffsetDateTime;

use self::{filing::Filing, flights::Flights};
pub use self::{flights::InFlight, only_worker::OnlyWorker};
use crate::{delivery::Status, place::Place, stall::Stalls};

/// Ids are made by replicas and times by the database: their clocks may be so far apart.
const SKEW: time::Duration = time::Duration::hours(1);

/// The schema of this crate.
pub const MIGRATIONS: Migrations = Migrations {
    name: "dispatch",
    sqlite: &[
        ("V1__dispatch", include_str!("../../migrations/sqlite/V1__dispatch.sql")),
        ("V2__jobs", include_str!("../../migrations/sqlite/V2__jobs.sql")),
        ("V3__rejected", include_str!("../../migrations/sqlite/V3__rejected.sql")),
        ("V4__lean", include_str!("../../migrations/sqlite/V4__lean.sql")),
        ("V5__operations", include_str!("../../migrations/sqlite/V5__operations.sql")),
        ("V6__changes", include_str!("../../migrations/sqlite/V6__changes.sql")),
        ("V7__waiting", include_str!("../../migrations/sqlite/V7__waiting.sql")),
        ("V8__filed", include_str!("../../migrations/sqlite/V8__filed.sql")),
        ("V9__flights", include_str!("../../migrations/sqlite/V9__flights.sql")),
        ("V10__first_attempts", include_str!("../../migrations/sqlite/V10__first_attempts.sql")),
        ("V11__waits_since", include_str!("../../migrations/sqlite/V11__waits_since.sql")),
        ("V12__trace", include_str!("../../migrations/sqlite/V12__trace.sql")),
    ],
    postgres: &[
        ("V1__dispatch", include_str!("../../migrations/postgres/V1__dispatch.sql")),
        ("V2__jobs", include_str!("../../migrations/postgres/V2__jobs.sql")),
        ("V3__rejected", include_str!("../../migrations/postgres/V3__rejected.sql")),
        ("V4__lean", include_str!("../../migrations/postgres/V4__lean.sql")),
        ("V5__operations", include_str!("../../migrations/postgres/V5__operations.sql")),
        ("V6__changes", include_str!("../../migrations/postgres/V6__changes.sql")),
        ("V7__waiting", include_str!("../../migrations/postgres/V7__waiting.sql")),
        ("V8__lines", include_str!("../../migrations/postgres/V8__lines.sql")),
        ("V9__flights", include_str!("../../migrations/postgres/V9__flights.sql")),
        ("V10__first_attempts", include_str!("../../migrations/postgres/V10__first_attempts.sql")),
        ("V11__waits_since", include_str!("../../migrations/postgres/V11__waits_since.sql")),
        ("V12__trace", include_str!("../../migrations/postgres/V12__trace.sql")),
    ],
};

/// An event to be taken in, with a delivery for each subscription that matches.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// Ours, sorts by time.
    pub uid: String,
    pub tenant: Arc<str>,
    /// The caller's, unique within the tenant.
    pub id: String,
    pub event_type: String,
    pub source: Option<String>,
    pub ordering_key: Option<String>,
    pub deliver_at: Option<OffsetDateTime>,
    pub data: Bytes,
    /// Of everything the caller sent.
    pub hash: [u8; 32],
    /// When it was accepted, if that was not now: Kafka had it first.
    pub created_at: Option<OffsetDateTime>,
    /// What it is accepted in, as a `traceparent`, where traces are exported.
    pub trace: Option<Arc<str>>,
    pub deliveries: Vec<NewDelivery>,
}

#[derive(Clone, Debug)]
pub struct NewDelivery {
    pub id: String,
    pub subscription: Arc<str>,
    /// Set where the subscription asks for order.
    pub ordering_key: Option<String>,
    /// Where this process has room for it, it is born leased to it and delivered at once; otherwise it waits to be claimed.
    pub place: Option<Place>,
}

/// What became of an event that was sent in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    New {
        at: OffsetDateTime,
    },
    /// The same event was taken in before.
    Repeat {
        at: OffsetDateTime,
    },
    /// Another event has this id.
    Conflict,
}

/// What tells a repeat of a known event from a conflict, and when it was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownEvent {
    pub hash: Vec<u8>,
    pub at: OffsetDateTime,
}

/// Who holds a delivery, and for how long. Longer than any attempt can take.
#[derive(Clone, Debug)]
pub struct Lease {
    pub owner: Arc<str>,
    pub length: Duration,
}

impl Lease {
    /// For deliveries that are born free.
    fn nobody() -> Lease {
        Lease { owner: "".into(), length: Duration::ZERO }
    }
}

/// A delivery that this process may attempt, until its lease ends.
#[derive(Clone, Debug)]
pub struct Claimed {
    pub id: String,
    pub tenant: Arc<str>,
    pub subscription: Arc<str>,
    pub event_id: String,
    pub event_type: String,
    pub event_at: OffsetDateTime,
    pub data: Bytes,
    /// Of its event.
    pub trace: Option<Arc<str>>,
    /// Attempts spent so far.
    pub attempts: u32,
    /// Someone asked for this attempt by hand; it starts no new schedule.
    pub is_manual: bool,
    /// Its event is one of Tidegate's own.
    pub is_operational: bool,
    /// Others may stand in line behind it.
    pub is_ordered: bool,
    /// Grows with every claim; a record with an older one changes nothing.
    pub fence: i64,
    /// It has no row yet.
    pub in_flight: Option<InFlight>,
}

/// What a claim found.
#[derive(Debug)]
pub struct Found {
    pub claimed: Vec<Claimed>,
    /// Nothing else is due.
    pub is_all: bool,
}

/// What to write down about a claimed delivery.
#[derive(Clone, Debug)]
pub struct Record {
    pub delivery: String,
    pub tenant: Arc<str>,
    pub fence: i64,
    pub is_ordered: bool,
    pub status: Status,
    /// When it may be taken again; `None` once it has ended.
    pub due_in: Option<Duration>,
    pub last_error: Option<String>,
    /// The attempt that was made; a deferral makes none.
    pub attempt: Option<NewAttempt>,
    /// An event of our own that tells of it, written with it or not at all.
    pub raises: Option<Box<NewEvent>>,
    /// It may be the first that is said of it, and makes its row.
    pub in_flight: Option<InFlight>,
}

impl Record {
    /// Whoever is next in line may go.
    fn ends_a_head(&self) -> bool {
        self.is_ordered && self.due_in.is_none()
    }
}

#[derive(Clone, Debug)]
pub struct NewAttempt {
    pub duration: Duration,
    pub response_status: Option<u16>,
    pub response_headers: Option<String>,
    pub response_body: Option<Bytes>,
    pub error_class: Option<&'static str>,
    pub error: Option<String>,
}

#[derive(Clone)]
pub struct Store {
    database: Database,
    stalls: Stalls,
    filing: Filing,
    flights: Flights,
}

impl Store {
    pub fn new(database: Database) -> Self {
        Store { database, stalls: Stalls::default(), filing: Filing::default(), flights: Flights::default() }
    }

    /// Writes that are tried again and again.
    pub fn stalls(&self) -> &Stalls {
        &self.stalls
    }

    /// The PostgreSQL underneath, where there is one.
    pub(crate) fn postgres(&self) -> Option<Postgres> {
        match &self.database {
            Database::Postgres(postgres) => Some(postgres.clone()),
            Database::Sqlite(_) => None,
        }
    }

    /// Takes events in, all in one commit; the answers are in the order of the events.
    pub async fn take_in(&self, events: impl Into<Arc<[NewEvent]>>, lease: &Lease) -> Result<Vec<Accepted>, Error> {
        let events = events.into();
        let accepted = match &self.database {
            Database::Sqlite(database) => {
                sqlite::take_in(database, Arc::clone(&events), lease.clone(), self.filing.clone()).await?
            }
            Database::Postgres(database) => {
                self.write_into_days(database, || postgres::take_in(database, &events, lease)).await?
            }
        };
        self.flights.note_own(&events, &accepted);
        Ok(accepted)
    }

    /// Events that are known by these tenants and ids: hash and time.
    pub async fn known_events(&self, keys: &[(Arc<str>, String)]) -> Result<Vec<Option<KnownEvent>>, Error> {
        match &self.database {
            Database::Sqlite(database) => sqlite::known_events(database, keys.to_vec()).await,
            Database::Postgres(database) => database.in_time(postgres::known_events(database, keys)).await,
        }
    }

    /// Leases what it can of the next `limit` deliveries that are due, the longest due first, and whole flights while `room` is
    /// left.
    pub async fn claim(&self, lease: &Lease, limit: u32, room: u32) -> Result<Found, Error> {
        let found = match &self.database {
            Database::Sqlite(database) => sqlite::claim(database, lease.clone(), limit, room).await?,
            Database::Postgres(database) => {
                self.write_into_days(database, || postgres::claim(database, lease, limit, room)).await?
            }
        };
        for in_flight in found.claimed.iter().filter_map(|claimed| claimed.in_flight.as_ref()) {
            self.flights.note(&in_flight.flight, 1);
        }
        Ok(found)
    }

    /// Keeps deliveries of `owner` whose calls outlast their lease, each by its id and fence. Those that were taken over stay so.
    pub async fn renew(&self, owner: &str, held: Vec<(String, i64)>, length: Duration) -> Result<(), Error> {
        self.land_some(owner).await?;
        match &self.database {
            Database::Sqlite(database) => sqlite::renew(database, held, length).await,
            Database::Postgres(database) => database.in_time(postgres::renew(database, &held, length)).await,
        }
    }

    /// Writes outcomes down where the fence still matches; returns how many were written.
    pub async fn record(&self, records: impl Into<Arc<[Record]>>) -> Result<usize, Error> {
        let records = records.into();
        let written = match &self.database {
            Database::Sqlite(database) => sqlite::record(database, Arc::clone(&records), self.filing.clone()).await?,
            Database::Postgres(database) => {
                self.write_into_days(database, || postgres::record(database, &records)).await?
            }
        };
        self.flights.landed(&records);
        Ok(written)
    }

    /// Writes into the partitions of a day. Where one is missing, nobody made it in time: then it is made, and `write` runs
    /// once more.
    async fn write_into_days<T, F>(&self, database: &Postgres, write: impl Fn() -> F + Send + Sync) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + Send,
    {
        match database.in_time(write()).await {
            Err(error) if error.is_missing_partition() => {
                tracing::warn!(error = %Chain(&error), "A day's partition is missing; making it.");
                database.in_time(upkeep::make_days(database)).await?;
                database.in_time(write()).await
            }
            outcome => outcome,
        }
    }
}

/// Sorts before every id that is made at this time or later, by the clock that it is measured with.
fn first_id(prefix: &str, at: OffsetDateTime) -> String {
    id::first_at(prefix, u64::try_from(at.unix_timestamp()).unwrap_or(0) * 1000)
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4)
}
