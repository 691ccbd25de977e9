//! One suite for both databases: a rotation loses no secret, and forgets no master key that is needed.

use std::collections::BTreeMap;

use platform::{http_client::Reachable, secret::Secret};
use tenancy::check_master_key;
use testkit::eventually;

use super::*;
use crate::{
    catalog::Catalog,
    store::{
        records::SealedSecret,
        tests::{each_store, tenants_of},
    },
};

fn vault(keys: &[&str]) -> Vault {
    let keys: Vec<String> = keys.iter().map(|digits| digits.repeat(32)).collect();
    Vault::new(&Secret::new(keys.join(","))).unwrap()
}

/// A replica with these master keys, as it starts.
async fn replica(store: &Store, keys: &[&str]) -> Rotation {
    let (tenants, vault) = (tenants_of(store), vault(keys));
    check_master_key(&tenants, &vault).await.unwrap();
    Rotation { store: store.clone(), tenants, vault }
}

impl Rotation {
    async fn subscribe(&self, id: &str) {
        let catalog = Catalog::new(self.store.clone(), self.vault.clone(), Reachable::loopback());
        let headers = BTreeMap::from([("x-of".to_owned(), id.to_owned())]);
        let mut sealed = vec![catalog.seal_headers("acme", id, &headers), catalog.seal_tls("acme", id, None)];
        sealed.push(catalog.seal_new_key("acme", id));
        self.keep(id, sealed).await;
    }

    async fn keep(&self, id: &str, sealed: Vec<SealedSecret>) {
        let settings = serde_json::from_value(serde_json::json!({
            "url": "https://hooks.example/", "event_types": ["**"], "rate_limit": 1, "max_concurrency": 1,
            "timeout": "1s", "retry_schedule": [], "ordering": "none",
        }));
        let made = self.store.create_subscription("dev", "acme", id, &settings.unwrap(), true, sealed).await;
        made.unwrap().unwrap();
    }
}

/// Can a process with this one alone start, and read every subscription?
async fn is_enough(store: &Store, key: &str) -> bool {
    let vault = vault(&[key]);
    if check_master_key(&tenants_of(store), &vault).await.is_err() {
        return false;
    }
    let catalog = Catalog::new(store.clone(), vault, Reachable::loopback());
    for row in store.subscriptions("acme", None, 1000).await.unwrap() {
        let secrets = catalog.secrets("acme", &row.id).await.unwrap();
        assert_eq!((&secrets.headers["x-of"], secrets.public_keys().len()), (&row.id, 1));
    }
    true
}

#[tokio::test]
async fn a_rotation_seals_everything_anew_and_forgets_the_old_master_key() {
    each_store(async |store| {
        let old = replica(&store, &["aa"]).await;
        for number in 0..60 {
            old.subscribe(&format!("s{number}")).await;
        }
        let before = store.subscription_version().await.unwrap();
        assert!(replica(&store, &["aa", "bb"]).await.rotate().await.unwrap(), "the first is the old one");
        assert!(is_enough(&store, "aa").await);
        let new = replica(&store, &["bb", "aa"]).await;
        assert!(!is_enough(&store, "bb").await);
        assert!(new.rotate().await.unwrap());
        assert!(is_enough(&store, "bb").await);
        assert!(!is_enough(&store, "aa").await);
        assert_eq!(store.changed_subscriptions(before).await.unwrap().len(), 0, "nobody has to read them again");
    })
    .await;
}

#[tokio::test]
async fn a_master_key_that_a_replica_still_seals_with_is_remembered_again() {
    each_store(async |store| {
        let old = replica(&store, &["aa", "bb"]).await;
        let new = replica(&store, &["bb", "aa"]).await;
        assert!(new.rotate().await.unwrap());
        old.subscribe("late").await;
        assert!(!is_enough(&store, "bb").await);
        assert!(new.rotate().await.unwrap());
        assert!(is_enough(&store, "bb").await);
    })
    .await;
}

/// Replicas that rotate in both directions, while both seal.
#[tokio::test]
async fn replicas_that_disagree_forget_no_master_key_that_is_needed() {
    each_store(async |store| {
        let (old, new) = (replica(&store, &["aa", "bb"]).await, replica(&store, &["bb", "aa"]).await);
        let turn = async |replica: &Rotation, name: &str| {
            for number in 0..6 {
                replica.subscribe(&format!("{name}{number}")).await;
                replica.rotate().await.unwrap();
            }
        };
        tokio::join!(turn(&old, "o"), turn(&new, "n"), turn(&old, "p"), turn(&new, "q"));
        let enough = [is_enough(&store, "aa").await, is_enough(&store, "bb").await];
        assert_ne!(enough, [true, true]);
        assert!(new.rotate().await.unwrap());
        assert!(is_enough(&store, "bb").await);
    })
    .await;
}

#[tokio::test]
async fn a_secret_that_was_changed_meanwhile_stays_as_it_is() {
    each_store(async |store| {
        let old = replica(&store, &["aa"]).await;
        old.subscribe("s").await;
        let [first, ..] = &store.secrets_behind(&SecretKey::default()).await.unwrap()[..] else { panic!() };
        let stale = Reseal { key: first.0.clone(), before: vec![1], sealed: vec![2] };
        store.reseal(old.vault.key_id(), &[stale]).await.unwrap();
        assert!(is_enough(&store, "aa").await);
    })
    .await;
}

#[tokio::test]
async fn a_damaged_secret_needs_its_master_key_until_its_subscription_is_deleted() {
    each_store(async |store| {
        let old = replica(&store, &["aa"]).await;
        old.subscribe("good").await;
        let damaged = old.vault.seal(Place { tenant: "acme", row: "elsewhere" }, &Secret::new("x"));
        old.keep("bad", vec![SealedSecret { id: "sec_1".to_owned(), sealed: damaged, expires_at: None }]).await;
        let new = replica(&store, &["bb", "aa"]).await;
        assert!(!new.rotate().await.unwrap());
        assert!(!is_enough(&store, "bb").await);
        assert!(store.delete_subscription("dev", "acme", "bad").await.unwrap());
        assert!(new.rotate().await.unwrap());
        assert!(is_enough(&store, "bb").await);
    })
    .await;
}

/// One that met a replica which still sealed with the other key waited a minute before it looked again.
#[tokio::test]
async fn a_rotation_that_could_not_end_is_tried_again_soon() {
    each_store(async |store| {
        let old = replica(&store, &["aa"]).await;
        let damaged = old.vault.seal(Place { tenant: "acme", row: "elsewhere" }, &Secret::new("x"));
        old.keep("bad", vec![SealedSecret { id: "sec_1".to_owned(), sealed: damaged, expires_at: None }]).await;
        let tasks = Tasks::new();
        replica(&store, &["bb", "aa"]).await.follow(&tasks);
        old.subscribe("good").await;
        let vault = vault(&["bb"]);
        eventually(EVERY / 2, "what can be opened to be sealed anew", async || {
            let secrets = store.secrets_behind(&SecretKey::default()).await.unwrap();
            secrets.iter().filter(|(_, sealed)| vault.is_current(sealed)).count() == 3
        })
        .await;
        assert!(store.delete_subscription("dev", "acme", "bad").await.unwrap());
        eventually(EVERY / 2, "the old one to go", async || is_enough(&store, "bb").await).await;
        assert!(tasks.stop(EVERY).await);
    })
    .await;
}
