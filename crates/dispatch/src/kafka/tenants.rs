//! Whose records are read: a record that names a tenant whom nobody made becomes no event.
//!
//! Tenants are made and deleted on any replica, so the database is asked for those that are not known here. What it said
//! is remembered for a moment, and only of tenants that exist: a new one is never turned away.

use std::{
    collections::{BTreeSet, HashSet},
    time::Duration,
};

use platform::problem::Chain;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    record::{BAD_TENANT, Incoming, Rejection, TENANT_HEADER},
    take::rest,
};
use crate::metrics as names;

const REMEMBERED_FOR: Duration = Duration::from_secs(1);

pub(super) struct Tenants {
    store: tenancy::Store,
    known: HashSet<String>,
    since: Instant,
}

impl Tenants {
    pub(super) fn new(store: tenancy::Store) -> Self {
        Tenants { store, known: HashSet::new(), since: Instant::now() }
    }

    /// Asks, until the database answers, which tenants of these records there are; false if it is told to give up.
    pub(super) async fn learn(&mut self, records: &[Incoming], give_up: &CancellationToken) -> bool {
        if self.since.elapsed() >= REMEMBERED_FOR {
            self.known.clear();
            self.since = Instant::now();
        }
        let named = records.iter().filter_map(|record| record.tenant().ok());
        let strangers: BTreeSet<&str> = named.filter(|tenant| !self.known.contains(*tenant)).collect();
        let mut pause = Duration::from_millis(20);
        while !strangers.is_empty() {
            match self.store.tenants_of(&strangers).await {
                Ok(found) => {
                    self.known.extend(found);
                    break;
                }
                Err(error) => {
                    metrics::counter!(names::KAFKA_WRITE_RETRIES).increment(1);
                    tracing::warn!(error = %Chain(&error), "Tenants could not be read; records wait for them.");
                }
            }
            if !rest(&mut pause, give_up).await {
                return false;
            }
        }
        true
    }

    /// Of a record that was learned of.
    pub(super) fn check(&self, record: &Incoming) -> Result<(), Rejection> {
        let tenant = record.tenant()?;
        if self.known.contains(tenant) {
            return Ok(());
        }
        let detail = format!(
            "there is no tenant {tenant:?}, which the header {TENANT_HEADER} names: make it, then retry the record"
        );
        Err(Rejection::new(BAD_TENANT, detail))
    }
}
