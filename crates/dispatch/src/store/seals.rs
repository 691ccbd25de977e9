//! What master keys the secrets in the database are sealed with, and putting another seal in place.
//!
//! Whatever writes a sealed secret remembers its master key in the same transaction, behind the lock that all changes to
//! subscriptions take (`bump`). So none is forgotten that something is sealed with, whichever replicas seal meanwhile.

use platform::{
    db::{Error, Row},
    query,
};
use tenancy::{forget_master_key, remember_master_key, vault::KeyId};

use super::{Store, records::bump};

/// Where a secret lies: tenant, subscription and id. They are sorted by it.
pub type SecretKey = (String, String, String);

/// A secret whose seal is to be another.
pub struct Reseal {
    pub key: SecretKey,
    pub before: Vec<u8>,
    pub sealed: Vec<u8>,
}

impl Store {
    /// Up to a hundred secrets behind `after`, also those that do not sign any more.
    pub async fn secrets_behind(
        &self,
        (tenant, subscription, id): &SecretKey,
    ) -> Result<Vec<(SecretKey, Vec<u8>)>, Error> {
        let values = [tenant.as_str().into(), subscription.as_str().into(), id.as_str().into()];
        let rows = self.database.fetch(query!("secrets_behind").with(values)).await?;
        let key = |row: &Row| (row.text("tenant_id"), row.text("subscription_id"), row.text("id"));
        Ok(rows.iter().map(|row| (key(row), row.bytes("sealed"))).collect())
    }

    /// All of them at once, but for those that someone has changed meanwhile.
    pub async fn reseal(&self, master_key: KeyId, secrets: &[Reseal]) -> Result<(), Error> {
        let mut steps = vec![bump(), remember_master_key(&master_key.to_string())];
        steps.extend(secrets.iter().map(|Reseal { key: (tenant, subscription, id), before, sealed }| {
            query!("reseal_secret").with([
                tenant.as_str().into(),
                subscription.as_str().into(),
                id.as_str().into(),
                before.as_slice().into(),
                sealed.as_slice().into(),
            ])
        }));
        self.database.transact_all(steps).await.map(drop)
    }

    /// False if something is sealed with it.
    pub async fn forget_master_key(&self, id: &str) -> Result<bool, Error> {
        let is_unused = query!("none_sealed_with").with([id.into()]).must_match();
        Ok(self.database.transact([bump(), is_unused, forget_master_key(id)]).await?.is_some())
    }
}
