//! One suite for both databases. Every query runs here, so a misspelt one cannot hide.

use std::future::Future;

use platform::db::{Config, Database, File};
use testkit::need;

use super::*;
use crate::{key, scope::Scope};

const DAY: Duration = Duration::from_secs(86_400);

async fn each_store<F: Future<Output = ()>>(case: impl Fn(Store) -> F) {
    let folder = tempfile::tempdir().unwrap();
    case(open("", folder.path()).await).await;
    let postgres = need!(testkit::postgres());
    case(open(&postgres.url(), folder.path()).await).await;
}

async fn open(url: &str, folder: &std::path::Path) -> Store {
    let file = File { url: platform::secret::Secret::new(url), pool_size: 4, ca_file: String::new() };
    let database = Database::connect(&Config::new(&file, folder).unwrap()).await.unwrap();
    database.migrate(&[MIGRATIONS]).await.unwrap();
    Store::new(database)
}

/// A key of tenant `default`, and the hash it is found by.
async fn make(store: &Store, ttl: Option<Duration>) -> (ApiKey, Hash) {
    let new = fresh(ttl);
    (store.create_key("admin", "default", &new).await.unwrap().unwrap(), new.hash)
}

fn fresh(ttl: Option<Duration>) -> NewKey<'static> {
    let key = key::generate();
    let hash = key::hash(key.expose()).unwrap();
    NewKey { name: "test", hash, hint: key::hint(&key), scopes: &[Scope::DispatchRead, Scope::KeysWrite], ttl }
}

async fn is_live(store: &Store, hash: &Hash) -> bool {
    let found = store.find_key(hash).await.unwrap().unwrap();
    !found.is_revoked && !found.is_expired
}

#[tokio::test]
async fn the_default_tenant_is_there_from_the_start() {
    each_store(async |store| {
        assert_eq!(store.tenant("default").await.unwrap().unwrap().name, "Default");
        assert_eq!(store.tenant("other").await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn tenants_are_listed_newest_first_page_by_page() {
    each_store(async |store| {
        for n in 0..5 {
            store.create_tenant("admin", &format!("t{n}"), "Name").await.unwrap();
        }
        let mut seen = Vec::new();
        while let page = store.tenants(seen.last().map(String::as_str), 2).await.unwrap()
            && !page.is_empty()
        {
            seen.extend(page.into_iter().map(|tenant| tenant.id));
        }
        assert_eq!(seen.len(), 6);
        assert_eq!(seen.last().map(String::as_str), Some("default"));
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 6);
    })
    .await;
}

#[tokio::test]
async fn a_tenant_is_renamed_and_deleted_with_its_keys() {
    each_store(async |store| {
        store.create_tenant("admin", "acme", "Acme").await.unwrap();
        assert!(store.create_tenant("admin", "acme", "Again").await.unwrap_err().is_duplicate());
        assert_eq!(store.rename_tenant("admin", "acme", "Acme Ltd").await.unwrap().unwrap().name, "Acme Ltd");
        assert_eq!(store.rename_tenant("admin", "nobody", "X").await.unwrap(), None);
        let new = fresh(None);
        store.create_key("admin", "acme", &new).await.unwrap().unwrap();
        assert!(store.delete_tenant("admin", "acme", Vec::new()).await.unwrap());
        assert!(!store.delete_tenant("admin", "acme", Vec::new()).await.unwrap());
        assert!(store.find_key(&new.hash).await.unwrap().is_none());
    })
    .await;
}

#[tokio::test]
async fn a_deleted_tenant_leaves_its_id_and_nothing_else() {
    each_store(async |store| {
        store.create_tenant("admin", "acme", "Acme").await.unwrap();
        assert!(!store.is_deleted("acme").await.unwrap());
        // What a role ends with it is ended with it or not at all.
        let never = || vec![query!("rename_tenant").with(["ghost".into(), "Ghost".into()]).must_match()];
        assert!(!store.delete_tenant("admin", "acme", never()).await.unwrap());
        assert!(store.tenant("acme").await.unwrap().is_some());
        assert!(store.delete_tenant("admin", "acme", Vec::new()).await.unwrap());
        assert_eq!(store.tenant("acme").await.unwrap(), None);
        assert_eq!(store.rename_tenant("admin", "acme", "Again").await.unwrap(), None);
        assert_eq!(store.create_key("admin", "acme", &fresh(None)).await.unwrap(), None);
        assert_eq!(store.tenants_of(&["acme"].into()).await.unwrap(), Vec::<String>::new());
        assert_eq!(store.tenants(None, 10).await.unwrap().len(), 1);
        assert!(store.create_tenant("admin", "acme", "Another").await.unwrap_err().is_duplicate());
        assert!(store.is_deleted("acme").await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn a_key_is_found_by_its_hash_alone() {
    each_store(async |store| {
        let (key, hash) = make(&store, Some(DAY)).await;
        let found = store.find_key(&hash).await.unwrap().unwrap();
        assert_eq!(
            (found.id, found.tenant_id, found.scopes),
            (key.id.clone(), "default".to_owned(), key.scopes.clone())
        );
        assert!(store.find_key(&fresh(None).hash).await.unwrap().is_none());
        assert_eq!(store.key("default", &key.id).await.unwrap().unwrap(), key);
        assert_eq!(store.key("other", &key.id).await.unwrap(), None);
        assert_eq!(key.expires_at.unwrap() - key.created_at, DAY);
    })
    .await;
}

#[tokio::test]
async fn the_database_clock_ends_a_key() {
    each_store(async |store| {
        let (_, hash) = make(&store, Some(Duration::ZERO)).await;
        assert!(!is_live(&store, &hash).await);
        let (_, hash) = make(&store, Some(DAY)).await;
        assert!(is_live(&store, &hash).await);
    })
    .await;
}

#[tokio::test]
async fn a_rotated_key_lives_through_its_grace_time_beside_the_new_one() {
    each_store(async |store| {
        let (old, old_hash) = make(&store, None).await;
        let new = fresh(None);
        let replacement = store.rotate_key("admin", "default", &old.id, DAY, &new).await.unwrap().unwrap();
        assert!(is_live(&store, &old_hash).await && is_live(&store, &new.hash).await);
        let old = store.key("default", &old.id).await.unwrap().unwrap();
        assert_eq!(old.replaced_by.as_deref(), Some(replacement.id.as_str()));
        assert!(old.expires_at.is_some());
        assert_eq!(
            store.rotate_key("admin", "default", &old.id, DAY, &fresh(None)).await.unwrap(),
            None,
            "replaced twice"
        );
    })
    .await;
}

#[tokio::test]
async fn no_more_than_two_keys_of_a_line_are_live() {
    each_store(async |store| {
        let (first, first_hash) = make(&store, None).await;
        let second_new = fresh(None);
        let second = store.rotate_key("admin", "default", &first.id, DAY, &second_new).await.unwrap().unwrap();
        let third_new = fresh(None);
        store.rotate_key("admin", "default", &second.id, DAY, &third_new).await.unwrap().unwrap();
        assert!(!is_live(&store, &first_hash).await);
        assert!(is_live(&store, &second_new.hash).await && is_live(&store, &third_new.hash).await);
    })
    .await;
}

#[tokio::test]
async fn grace_never_makes_a_key_live_longer() {
    each_store(async |store| {
        let (old, _) = make(&store, Some(Duration::from_secs(60))).await;
        store.rotate_key("admin", "default", &old.id, DAY, &fresh(None)).await.unwrap().unwrap();
        assert_eq!(store.key("default", &old.id).await.unwrap().unwrap().expires_at, old.expires_at);
    })
    .await;
}

#[tokio::test]
async fn a_rotated_key_lives_as_long_as_the_one_before_was_made_to() {
    each_store(async |store| {
        let tenancy =
            crate::Tenancy::new(&crate::config::Doors::Dev, store.0.clone(), &[], platform::shutdown::Tasks::new());
        for ttl in [None, Some(DAY)] {
            let (old, _) =
                tenancy.create_key("admin", "default", "test", &[Scope::KeysRead], ttl).await.unwrap().unwrap();
            let (new, _) = tenancy.rotate_key("admin", &old, DAY).await.unwrap().unwrap();
            assert_eq!(new.expires_at.map(|end| end - new.created_at), ttl.map(|ttl| ttl.try_into().unwrap()));
        }
    })
    .await;
}

#[tokio::test]
async fn an_expired_or_revoked_key_cannot_be_rotated_back_to_life() {
    each_store(async |store| {
        let (expired, _) = make(&store, Some(Duration::ZERO)).await;
        let (revoked, _) = make(&store, None).await;
        assert!(store.revoke_key("admin", "default", &revoked.id).await.unwrap());
        for id in [expired.id, revoked.id, "key_unknown".to_owned()] {
            assert_eq!(store.rotate_key("admin", "default", &id, DAY, &fresh(None)).await.unwrap(), None);
        }
        assert_eq!(store.keys("default", None, 10).await.unwrap().len(), 2, "nothing was made in their place");
    })
    .await;
}

#[tokio::test]
async fn revoking_is_for_the_own_tenant_and_keeps_its_first_time() {
    each_store(async |store| {
        let (key, hash) = make(&store, None).await;
        assert!(!store.revoke_key("admin", "other", &key.id).await.unwrap());
        assert!(is_live(&store, &hash).await);
        assert!(store.revoke_key("admin", "default", &key.id).await.unwrap());
        let first = store.key("default", &key.id).await.unwrap().unwrap().revoked_at;
        assert!(store.revoke_key("admin", "default", &key.id).await.unwrap());
        assert_eq!(store.key("default", &key.id).await.unwrap().unwrap().revoked_at, first);
        assert!(!is_live(&store, &hash).await);
    })
    .await;
}

#[tokio::test]
async fn the_last_use_is_written_once_a_minute() {
    each_store(async |store| {
        let (key, hash) = make(&store, None).await;
        assert!(store.find_key(&hash).await.unwrap().unwrap().is_use_unrecorded);
        store.touch_key("default", &key.id).await.unwrap();
        assert!(!store.find_key(&hash).await.unwrap().unwrap().is_use_unrecorded);
        assert!(store.key("default", &key.id).await.unwrap().unwrap().last_used_at.is_some());
    })
    .await;
}

#[tokio::test]
async fn every_change_leaves_an_entry_and_a_refused_one_none() {
    each_store(async |store| {
        store.create_tenant("admin", "acme", "Acme").await.unwrap();
        let key = store.create_key("cli", "acme", &fresh(None)).await.unwrap().unwrap();
        store.revoke_key("admin", "acme", "key_unknown").await.unwrap();
        store.revoke_key("admin", "acme", &key.id).await.unwrap();
        let entries = store.audit(Some("acme"), None, 10).await.unwrap();
        let seen: Vec<_> = entries.iter().map(|entry| (entry.actor.as_str(), entry.action.as_str())).collect();
        assert_eq!(seen, [("admin", "key.revoked"), ("cli", "key.created"), ("admin", "tenant.created")]);
        assert_eq!(store.audit(Some("other"), None, 10).await.unwrap(), []);
        assert_eq!(store.audit(None, Some(&entries[1].id), 10).await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn old_entries_and_keys_that_ended_long_ago_are_forgotten() {
    each_store(async |store| {
        let (live, _) = make(&store, None).await;
        let (_, later) = make(&store, Some(DAY)).await;
        let (revoked, _) = make(&store, Some(DAY)).await;
        store.revoke_key("admin", "default", &revoked.id).await.unwrap();
        let (expired, _) = make(&store, Some(Duration::from_millis(1))).await;
        let (both, _) = make(&store, Some(Duration::from_millis(1))).await;
        store.revoke_key("admin", "default", &both.id).await.unwrap();
        assert_eq!(store.live_keys("default").await.unwrap(), 2);
        for n in 0..FORGOTTEN_AT_A_TIME {
            store.0.transact([audit("default", "admin", "test", &n.to_string())]).await.unwrap();
        }
        assert_eq!(store.forget(DAY).await.unwrap(), 0, "nothing is old yet");
        assert_eq!(store.keys("default", None, 10).await.unwrap().len(), 5);
        let (entries, keys, mut gone) = (7 + usize::try_from(FORGOTTEN_AT_A_TIME).unwrap(), 3, 0);
        // Until the last millisecond is over.
        while gone < entries + keys {
            gone += store.forget(Duration::ZERO).await.unwrap();
        }
        assert_eq!(gone, entries + keys);
        assert_eq!(store.audit(None, None, 10).await.unwrap(), []);
        let mut left: Vec<_> = store.keys("default", None, 10).await.unwrap().into_iter().map(|key| key.id).collect();
        left.sort_unstable();
        assert_eq!(left, [live.id, store.find_key(&later).await.unwrap().unwrap().id]);
        for id in [expired.id, revoked.id] {
            assert_eq!(store.key("default", &id).await.unwrap(), None);
        }
    })
    .await;
}

#[tokio::test]
async fn of_many_ids_those_of_tenants_are_told() {
    each_store(async |store| {
        store.create_tenant("admin", "acme", "Acme").await.unwrap();
        let mut found = store.tenants_of(&["acme", "default", "ghost"].into()).await.unwrap();
        found.sort_unstable();
        assert_eq!(found, ["acme", "default"]);
    })
    .await;
}

#[tokio::test]
async fn a_start_needs_every_master_key_that_is_not_forgotten() {
    let vault = |keys: &str| crate::vault::Vault::new(&platform::secret::Secret::new(keys)).unwrap();
    let (one, two) = ("11".repeat(32), "22".repeat(32));
    each_store(async |store| {
        crate::check_master_key(&store, &vault(&one)).await.unwrap();
        crate::check_master_key(&store, &vault(&one)).await.unwrap();
        assert!(crate::check_master_key(&store, &vault(&two)).await.is_err());
        crate::check_master_key(&store, &vault(&format!("{two},{one}"))).await.unwrap();
        let (old, new) = (vault(&one).key_id().to_string(), vault(&two).key_id().to_string());
        for (lone, missing) in [(&two, &old), (&one, &new)] {
            let refused = crate::check_master_key(&store, &vault(lone)).await.unwrap_err().to_string();
            assert!(refused.contains("TIDEGATE_MASTER_KEY") && refused.contains(missing), "{refused}");
        }
        store.0.transact([forget_master_key(&old)]).await.unwrap();
        crate::check_master_key(&store, &vault(&two)).await.unwrap();
        assert!(crate::check_master_key(&store, &vault(&one)).await.is_err());
    })
    .await;
}
