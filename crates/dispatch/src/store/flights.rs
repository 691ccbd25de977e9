//! Flights: deliveries that have no rows of their own yet.
//!
//! Nearly every delivery is made at once and ends with its first call. A row that says so twice, "being made" and some milliseconds
//! later "delivered", costs twice, with all of its indexes. So the commit that makes deliveries puts them into flights, many in
//! one row, and a delivery gets its own row with the first that is said of it: delivered, put off, failed.
//!
//! Whoever must see deliveries as rows *lands* flights first: lists, changes by hand, jobs, a worker that stops, and a worker that
//! finds a flight whose owner's lease is over. Landing gives each delivery the row that it would have had from the start, leased to
//! the same owner until the same time; one that has a row keeps it. So it changes nothing for the owner, and may happen at any time.

use std::{sync::Arc, time::Duration};

use hashbrown::HashMap;
use parking_lot::Mutex;
use platform::{
    db::{Database, Error, Value},
    problem::Chain,
    query,
};
use rusqlite::{Connection, params};
use time::OffsetDateTime;
use tokio::time::Instant;

use super::{
    Accepted, Lease, NewDelivery, NewEvent, Record, Store,
    filing::file,
    sqlite::{now, to_ms},
};

/// A flight for anyone holds no more, so that claimers share ..
pub(super) const MOST: usize = 100;
/// .. and no more bytes of payload, because a claimer has all of them in memory.
const MOST_BYTES: usize = 1 << 20;
/// How soon a flight whose deliveries all have rows is gone. Until then it costs those who land it.
const END_EVERY: Duration = Duration::from_millis(200);

/// What the row of a delivery will hold that has none yet.
#[derive(Clone, Debug)]
pub struct InFlight {
    pub flight: Arc<str>,
    pub event_uid: String,
    pub subscription: Arc<str>,
    /// When it was made.
    pub since: Instant,
}

/// Which flights to land, as the statements have it: these, or an owner's.
pub(super) const ALL: &str = "all";
/// Nobody has claimed them.
pub(super) const FREE: &str = "free";
/// Their owner's lease is over.
pub(super) const EXPIRED: &str = "expired";
/// Nobody would ever find them expired: the database's clock was ahead, or somebody changed them by hand.
pub(super) const LOST: &str = "lost";

/// A flight to be written in the commit that makes its deliveries.
pub(super) struct NewFlight<'a> {
    pub(super) id: &'a str,
    /// Whose it is from the start.
    pub(super) lease: Option<&'a Lease>,
    pub(super) deliveries: Vec<(&'a NewEvent, &'a NewDelivery)>,
}

/// May it be made at once? What waits for a time, or stands in a line, has a row from the start.
pub(super) fn is_in_flight(event: &NewEvent, delivery: &NewDelivery) -> bool {
    event.deliver_at.is_none() && delivery.ordering_key.is_none()
}

/// What this process took into its own hands is one flight, called like the batch's first event; the rest flies in several.
pub(super) fn flights_of<'a>(
    batch: &'a [NewEvent],
    is_fresh: impl Fn(usize, &NewEvent) -> bool,
    lease: &'a Lease,
) -> Vec<NewFlight<'a>> {
    let (mut own, mut free, mut bytes) = (Vec::new(), Vec::<NewFlight<'a>>::new(), 0);
    for (_, event) in batch.iter().enumerate().filter(|(place, event)| is_fresh(*place, event)) {
        for delivery in event.deliveries.iter().filter(|delivery| is_in_flight(event, delivery)) {
            if delivery.place.is_some() {
                own.push((event, delivery));
                continue;
            }
            bytes += event.data.len();
            match free.last_mut().filter(|flight| flight.deliveries.len() < MOST && bytes <= MOST_BYTES) {
                Some(flight) => flight.deliveries.push((event, delivery)),
                None => {
                    bytes = event.data.len();
                    free.push(NewFlight { id: &delivery.id, lease: None, deliveries: vec![(event, delivery)] });
                }
            }
        }
    }
    if let Some(first) = batch.first().filter(|_| !own.is_empty()) {
        free.push(NewFlight { id: &first.uid, lease: Some(lease), deliveries: own });
    }
    free
}

/// The flights that this process has: how many of their deliveries have no row yet, and those of which all have one. Cheap to
/// clone.
#[derive(Clone, Default)]
pub(super) struct Flights {
    known: Arc<Mutex<Known>>,
    /// One lands at a time: those who wait for it find little left to do.
    landing: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct Known {
    left: HashMap<Arc<str>, usize>,
    over: Vec<Arc<str>>,
}

impl Flights {
    /// Of what was just taken in, the flight that is this process's own.
    pub(super) fn note_own(&self, batch: &[NewEvent], accepted: &[Accepted]) {
        let fresh = batch.iter().zip(accepted).filter(|(_, accepted)| matches!(accepted, Accepted::New { .. }));
        let own = |event: &&NewEvent| {
            let deliveries = event.deliveries.iter();
            deliveries.filter(|delivery| delivery.place.is_some() && is_in_flight(event, delivery)).count()
        };
        let size = fresh.map(|(event, _)| own(&event)).sum();
        if let Some(first) = batch.first() {
            self.note(&Arc::from(first.uid.as_str()), size);
        }
    }

    pub(super) fn note(&self, flight: &Arc<str>, size: usize) {
        if size > 0 {
            *self.known.lock().left.entry(Arc::clone(flight)).or_default() += size;
        }
    }

    /// These have rows now, whoever wrote them.
    pub(super) fn landed(&self, records: &[Record]) {
        let mut known = self.known.lock();
        for InFlight { flight, .. } in records.iter().filter_map(|record| record.in_flight.as_ref()) {
            let Some(left) = known.left.get_mut(flight) else { continue };
            *left -= 1;
            if *left == 0 {
                known.left.remove(flight);
                known.over.push(Arc::clone(flight));
            }
        }
    }

    fn take_over(&self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.known.lock().over)
    }
}

/// So many milliseconds ago.
pub(super) fn since(age: i64) -> Instant {
    let now = Instant::now();
    now.checked_sub(Duration::from_millis(u64::try_from(age).unwrap_or_default())).unwrap_or(now)
}

/// Lands a few flights of those that were made until `newest`, within the writer's commit. Returns how many.
pub(super) fn land(connection: &Connection, which: &str, newest: i64) -> rusqlite::Result<usize> {
    let mut pick = connection.prepare_cached(include_str!("sqlite/pick_flights.sql"))?;
    let picked: String = pick.query_row(params![which, newest, now(connection)?], |row| row.get(0))?;
    if picked == "[]" {
        return Ok(0);
    }
    connection.prepare_cached(include_str!("sqlite/note_flights.sql"))?.execute([&picked])?;
    connection.prepare_cached(include_str!("sqlite/land_flights.sql"))?.execute([&picked])?;
    let landed = connection.prepare_cached(include_str!("sqlite/delete_flights.sql"))?.execute([&picked])?;
    // Here, a thousand at a time: left to a later commit, a backlog would be filed in one go.
    file(connection)?;
    Ok(landed)
}

impl Store {
    /// Gives every delivery its row. Where the database takes no writes, those in flight are not seen, and that is all.
    pub(super) async fn land(&self) {
        if let Err(error) = self.land_some(ALL).await {
            tracing::warn!(error = %Chain(&error), "Deliveries that were made just now are not seen.");
        }
    }

    /// A few at a time, so that nobody else waits long: a backlog may have thousands. Those that come meanwhile stay.
    pub(super) async fn land_some(&self, which: &str) -> Result<(), Error> {
        let _landing = self.flights.landing.lock().await;
        let rows = self.database.fetch(query!("newest_flight").with([])).await?;
        let Some(newest) = rows.first().and_then(|row| row.optional_time("newest")) else { return Ok(()) };
        while self.land_a_few(which, newest).await? > 0 {}
        Ok(())
    }

    async fn land_a_few(&self, which: &str, newest: OffsetDateTime) -> Result<usize, Error> {
        match &self.database {
            Database::Sqlite(sqlite) => {
                let which = which.to_owned();
                sqlite.write(move |connection| land(connection, &which, to_ms(newest))).await
            }
            Database::Postgres(postgres) => {
                self.write_into_days(postgres, || super::postgres::land(postgres, which, newest)).await
            }
        }
    }

    /// For as long as this process delivers: its flights that are over leave the table.
    pub async fn end_flights(self) {
        loop {
            tokio::time::sleep(END_EVERY).await;
            if let Err(error) = self.end_those_over().await {
                // They end with their lease all the same.
                tracing::debug!(error = %Chain(&error), "Flights that are over were not deleted.");
            }
        }
    }

    async fn end_those_over(&self) -> Result<(), Error> {
        let over = self.flights.take_over();
        if over.is_empty() {
            return Ok(());
        }
        let over: Vec<&str> = over.iter().map(|flight| &**flight).collect();
        let ids = Value::Text(serde_json::Value::from(over).to_string());
        self.database.transact([query!("delete_flights").with([ids])]).await.map(drop)
    }
}

#[cfg(test)]
mod tests;
