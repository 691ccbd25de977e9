//! The policies that somebody wrote, in memory, checked. Other replicas' changes are seen within [`REFRESH`], our own at
//! once.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::RwLock;
use platform::{db, shutdown::Tasks};

use super::{
    policy::{Policy, Written},
    store::{Change, Place, Store},
};

/// How long another replica's change may go unnoticed.
const REFRESH: Duration = Duration::from_millis(500);

type Policies = HashMap<Box<str>, Arc<Policy>>;

/// Cheap to clone.
#[derive(Clone)]
pub(super) struct Catalog {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    /// By tenant, then target.
    tenants: RwLock<HashMap<Box<str>, Policies>>,
    /// How far the rows were read. One refresh at a time.
    read: tokio::sync::Mutex<Place>,
}

impl Catalog {
    pub(super) fn new(store: Store) -> Catalog {
        let (tenants, read) = (RwLock::default(), tokio::sync::Mutex::default());
        Catalog { inner: Arc::new(Inner { store, tenants, read }) }
    }

    pub(super) fn get(&self, tenant: &str, target: &str) -> Option<Arc<Policy>> {
        self.inner.tenants.read().get(tenant)?.get(target).cloned()
    }

    /// Reads what changed since the last time.
    pub(super) async fn refresh(&self) -> Result<(), db::Error> {
        let mut read = self.inner.read.lock().await;
        while let (changes, Some(last)) = self.inner.store.changes(&read).await? {
            changes.iter().for_each(|change| self.take(change));
            *read = last;
        }
        Ok(())
    }

    /// Follows other replicas' changes until shutdown.
    pub(super) fn follow(&self, tasks: &Tasks) {
        let (catalog, stopping) = (self.clone(), tasks.stopping().clone());
        tasks.spawn("gate policies", async move {
            let mut tick = tokio::time::interval(REFRESH);
            while stopping.run_until_cancelled(tick.tick()).await.is_some() {
                if let Err(error) = catalog.refresh().await {
                    tracing::warn!(%error, "Policies of gates could not be read; the last known ones are used.");
                }
            }
        });
    }

    /// What was checked when it was written is fine; a policy that is not (another version wrote it) is left out, loudly.
    fn take(&self, change: &Change) {
        let Change { tenant, target, policy } = change;
        let checked = policy.as_deref().map(|json| {
            let written: Written = serde_json::from_str(json).map_err(|error| error.to_string())?;
            written.check("").map_err(|invalid| invalid.to_string())
        });
        let mut tenants = self.inner.tenants.write();
        match checked {
            Some(Ok(policy)) => {
                let policies = tenants.entry(tenant.as_str().into()).or_default();
                policies.insert(target.as_str().into(), Arc::new(policy));
            }
            Some(Err(problem)) => {
                tracing::error!(
                    tenant,
                    gate = target,
                    problem,
                    "A gate's policy cannot be used; the one before it stays."
                );
            }
            None => {
                if let Some(policies) = tenants.get_mut(tenant.as_str()) {
                    policies.remove(target.as_str());
                }
            }
        }
    }
}
