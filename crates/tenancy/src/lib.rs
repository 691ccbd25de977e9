//! Tenants, API keys, scopes, secrets at rest, audit: the door every role stands behind.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`check`] | what may stand in a tenant or key (pure) |
//! | [`door`] | who is calling, for which tenant: every request passes here |
//! | [`key`] | the shape of an API key (pure) |
//! | [`scope`] | what a key may do (pure) |
//! | [`vault`] | secrets at rest |
//! | `store` | rows, in SQLite and PostgreSQL |
//! | `http` | `/admin/tenants`, keys, `/admin/audit`, `/v1/me` |

pub mod check;
pub mod config;
pub mod door;
mod http;
pub mod key;
pub mod model;
pub mod scope;
mod store;
pub mod vault;

use std::time::Duration;

use platform::{
    config::Invalid,
    db::{Database, Error, Step},
    problem::Chain,
    secret::Secret,
    shutdown::Tasks,
};

use self::{config::Doors, door::Door, model::ApiKey, scope::Scope, store::NewKey, vault::Vault};
pub use self::{
    http::routes,
    store::{MIGRATIONS, Store, audit, forget_master_key, keep_tenant, remember_master_key},
};

const UPKEEP_INTERVAL: Duration = Duration::from_secs(3600);

/// What a role ends with a tenant, in the transaction that deletes it: so it is done even if this process dies then.
pub type Ending = fn(tenant: &str) -> Vec<Step>;

/// The tenants of one database, and the door in front of them. Cheap to clone.
#[derive(Clone)]
pub struct Tenancy {
    store: Store,
    door: Door,
    endings: &'static [Ending],
}

impl Tenancy {
    /// `endings` are those of every role, also of those that other processes have.
    pub fn new(doors: &Doors, database: Database, endings: &'static [Ending], tasks: Tasks) -> Self {
        let store = Store::new(database);
        Tenancy { door: Door::new(doors, store.clone(), tasks), store, endings }
    }

    pub fn door(&self) -> &Door {
        &self.door
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Ends what is older than `retention`, once an hour; every process does it, and the first finds something.
    pub fn keep_up(&self, retention: Duration, tasks: &Tasks) {
        let (store, stopping) = (self.store.clone(), tasks.stopping().clone());
        tasks.spawn("tenancy upkeep", async move {
            let mut tick = tokio::time::interval(UPKEEP_INTERVAL);
            while stopping.run_until_cancelled(tick.tick()).await.is_some() {
                match stopping.run_until_cancelled(store.forget(retention)).await {
                    None | Some(Ok(0)) => (),
                    Some(Ok(gone)) => tracing::info!(gone, "Old audit entries and dead keys are gone."),
                    Some(Err(error)) => {
                        tracing::warn!(error = %Chain(&error), "Upkeep failed; it runs again in an hour.");
                    }
                }
            }
        });
    }

    /// Ends a tenant for good: its keys, and what the roles do for it. False if there is none.
    pub async fn delete(&self, actor: &str, tenant: &str) -> Result<bool, Error> {
        let endings = self.endings.iter().flat_map(|ending| ending(tenant)).collect();
        let is_found = self.store.delete_tenant(actor, tenant, endings).await?;
        self.door.forget();
        Ok(is_found)
    }

    /// Makes a key. It is returned once and stored only as a hash. `None`: there is no such tenant.
    pub async fn create_key(
        &self,
        actor: &str,
        tenant: &str,
        name: &str,
        scopes: &[Scope],
        ttl: Option<Duration>,
    ) -> Result<Option<(ApiKey, Secret)>, Error> {
        let key = key::generate();
        let made = self.store.create_key(actor, tenant, &new_key(&key, name, scopes, ttl)).await?;
        Ok(made.map(|api_key| (api_key, key)))
    }

    /// Makes a key in another's place, which stays valid for the grace time; `None` if that one is not live.
    pub async fn rotate_key(
        &self,
        actor: &str,
        old: &ApiKey,
        grace: Duration,
    ) -> Result<Option<(ApiKey, Secret)>, Error> {
        let key = key::generate();
        // It lives as long as the old one was made to live, from now on.
        let ttl = old.expires_at.and_then(|end| Duration::try_from(end - old.created_at).ok());
        let new = new_key(&key, &old.name, &old.scopes, ttl);
        let rotated = self.store.rotate_key(actor, &old.tenant_id, &old.id, grace, &new).await?;
        self.door.forget();
        Ok(rotated.map(|api_key| (api_key, key)))
    }

    /// Ends a key at once; false if the tenant has no such key.
    pub async fn revoke_key(&self, actor: &str, tenant: &str, id: &str) -> Result<bool, Error> {
        let is_found = self.store.revoke_key(actor, tenant, id).await?;
        self.door.forget();
        Ok(is_found)
    }
}

fn new_key<'a>(key: &'a Secret, name: &'a str, scopes: &'a [Scope], ttl: Option<Duration>) -> NewKey<'a> {
    let hash = key::hash(key.expose()).expect("a generated key is well formed");
    NewKey { name, hash, hint: key::hint(key), scopes, ttl }
}

/// Refuses master keys that cannot open all that this database holds; remembers a new one.
pub async fn check_master_key(store: &Store, vault: &Vault) -> Result<(), MasterKeyError> {
    if let Some(id) = store.master_keys().await?.into_iter().find(|id| !vault.knows(id)) {
        return Err(MasterKeyError::Wrong(Invalid::new(
            "security.master_key",
            format!(
                "this database's secrets were sealed with a master key that is not given (its id is {id}): set TIDEGATE_MASTER_KEY to that one; to rotate, write the new key, a comma, the old key, until the log says that every secret is sealed with the first"
            ),
        )));
    }
    Ok(store.remember_master_key(&vault.key_id().to_string()).await?)
}

#[derive(Debug, thiserror::Error)]
pub enum MasterKeyError {
    #[error(transparent)]
    Wrong(Invalid),
    #[error("the master key could not be checked")]
    Database(#[from] Error),
}
