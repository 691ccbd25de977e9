//! One suite for both databases.

use std::future::Future;

use platform::{
    db::{Config, File},
    secret::Secret,
};
use testkit::need;

use super::*;

async fn each_store<F: Future<Output = ()>>(case: impl Fn(Store) -> F) {
    let folder = tempfile::tempdir().unwrap();
    case(open("", folder.path()).await).await;
    let postgres = need!(testkit::postgres());
    case(open(&postgres.url(), folder.path()).await).await;
}

async fn open(url: &str, folder: &std::path::Path) -> Store {
    let file = File { url: Secret::new(url), pool_size: 4, ca_file: String::new() };
    let database = Database::connect(&Config::new(&file, folder).unwrap()).await.unwrap();
    database.migrate(&[MIGRATIONS]).await.unwrap();
    Store::new(database)
}

#[tokio::test]
async fn a_policy_that_is_written_changed_or_taken_away_is_a_change() {
    each_store(async |store| {
        let policy = Written::standard();
        assert!(store.changes(0).await.unwrap().is_empty());
        store.put_policy("acme", "api", Some(&policy)).await.unwrap();
        let changes = store.changes(0).await.unwrap();
        assert_eq!((changes.len(), changes[0].target.as_str()), (1, "api"));
        assert_eq!(serde_json::from_str::<Written>(changes[0].policy.as_deref().unwrap()).unwrap(), policy);
        store.put_policy("acme", "api", None).await.unwrap();
        let later = store.changes(changes[0].version).await.unwrap();
        assert_eq!(later.len(), 1);
        assert_eq!(later[0].policy, None);
        assert!(store.changes(later[0].version).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn gates_are_listed_by_name_in_pages_and_only_to_their_tenant() {
    each_store(async |store| {
        let used: Vec<_> =
            ["b", "a", "Z", "ä"].map(|target| ("acme".to_owned(), target.to_owned())).into_iter().collect();
        store.touch(&used).await.unwrap();
        store.touch(&used).await.unwrap();
        store.put_policy("acme", "c", Some(&Written::default())).await.unwrap();
        let names = async |after: Option<&str>, limit| {
            let listed = store.list("acme", after, limit).await.unwrap();
            listed.into_iter().map(|listed| listed.target).collect::<Vec<_>>()
        };
        assert_eq!(names(None, 3).await, ["Z", "a", "b"]);
        assert_eq!(names(Some("b"), 3).await, ["c", "ä"]);
        assert!(store.list("globex", None, 10).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn unused_gates_are_forgotten_unless_they_have_a_policy() {
    each_store(async |store| {
        store.touch(&[("acme".to_owned(), "old".to_owned())]).await.unwrap();
        store.put_policy("acme", "kept", Some(&Written::default())).await.unwrap();
        store.forget(Duration::from_secs(60)).await.unwrap();
        assert_eq!(store.list("acme", None, 10).await.unwrap().len(), 2);
        // One millisecond ago is long ago once that has passed.
        while store.list("acme", None, 10).await.unwrap().len() == 2 {
            store.forget(Duration::from_millis(1)).await.unwrap();
        }
        assert_eq!(store.list("acme", None, 10).await.unwrap()[0].target, "kept");
    })
    .await;
}

#[tokio::test]
async fn a_tenants_policies_end_with_it() {
    each_store(async |store| {
        for tenant in ["acme", "other"] {
            store.put_policy(tenant, "api", Some(&Written::standard())).await.unwrap();
        }
        let before = store.changes(0).await.unwrap().last().unwrap().version;
        store.0.transact_all(end_tenant("acme")).await.unwrap().unwrap();
        let changes = store.changes(before).await.unwrap();
        assert_eq!((changes.len(), changes[0].tenant.as_str(), &changes[0].policy), (1, "acme", &None));
    })
    .await;
}
