//! Rotation of the master key: what another one sealed is sealed anew with the first, then the other is forgotten.
//!
//! Every process does it, in batches, and may die in between: whoever looks next begins at the beginning, and leaves alone what
//! is sealed with the first. Subscriptions do not change by it, so nobody reads them again.

#[cfg(test)]
mod tests;

use std::time::Duration;

use platform::shutdown::Tasks;
use tenancy::vault::{Place, Vault};

use crate::{
    catalog::place,
    error::Error,
    store::{
        Store,
        records::AIR,
        seals::{Reseal, SecretKey},
    },
};

/// How often it is looked whether something is left to do: replicas that seal with another one may still be there.
const EVERY: Duration = Duration::from_secs(60);
/// After a round that could not end, then twice as long each time.
const SOON: Duration = Duration::from_secs(1);

pub(crate) struct Rotation {
    pub(crate) store: Store,
    pub(crate) tenants: tenancy::Store,
    pub(crate) vault: Vault,
}

impl Rotation {
    pub(crate) fn follow(self, tasks: &Tasks) {
        let stopping = tasks.stopping().clone();
        tasks.spawn("master key rotation", async move {
            let mut is_told = !self.vault.has_several();
            let mut pause = SOON;
            while let Some(rotated) = stopping.run_until_cancelled(self.rotate()).await {
                if let Err(error) = &rotated {
                    tracing::warn!(%error, "Secrets were not all sealed anew; trying again.");
                }
                let is_done = rotated.unwrap_or(false);
                if is_done && !is_told {
                    is_told = true;
                    tracing::info!(id = %self.vault.key_id(), "Every secret is sealed with the first master key.");
                }
                let next = if is_done { EVERY } else { pause };
                pause = if is_done { SOON } else { (pause * 2).min(EVERY) };
                if stopping.run_until_cancelled(tokio::time::sleep(next)).await.is_none() {
                    return;
                }
            }
        });
    }

    /// True once the first master key is the only one that is needed.
    async fn rotate(&self) -> Result<bool, Error> {
        let Rotation { store, tenants, vault } = self;
        let others: Vec<String> = tenants.master_keys().await?.into_iter().filter(|id| !vault.is_first(id)).collect();
        if others.iter().any(|id| vault.knows(id)) {
            self.seal_anew().await?;
        }
        let mut is_alone = true;
        for id in others {
            is_alone &= vault.knows(&id) && store.forget_master_key(&id).await?;
        }
        Ok(is_alone)
    }

    async fn seal_anew(&self) -> Result<(), Error> {
        let mut after = SecretKey::default();
        loop {
            let secrets = self.store.secrets_behind(&after).await?;
            let Some((last, _)) = secrets.last() else { return Ok(()) };
            after = last.clone();
            let resealed: Vec<Reseal> =
                secrets.into_iter().filter_map(|(key, sealed)| self.anew(key, sealed)).collect();
            if !resealed.is_empty() {
                self.store.reseal(self.vault.key_id(), &resealed).await?;
                tokio::time::sleep(AIR).await;
            }
        }
    }

    fn anew(&self, key: SecretKey, before: Vec<u8>) -> Option<Reseal> {
        if self.vault.is_current(&before) {
            return None;
        }
        let (tenant, subscription, id) = &key;
        let place = Place { tenant, row: &place(subscription, id) };
        let loudly = |error: &_| {
            tracing::error!(%subscription, %error, "A secret cannot be sealed anew; it ends with its subscription.");
        };
        let secret = self.vault.open(place, &before).inspect_err(loudly).ok()?;
        let sealed = self.vault.seal(place, &secret);
        Some(Reseal { key, before, sealed })
    }
}
