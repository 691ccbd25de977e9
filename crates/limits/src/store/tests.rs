//! One suite for both databases: what a writer of rules is promised, and how replicas learn of it.

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
    let file = File { url: Secret::new(url), pool_size: 8, ca_file: String::new() };
    let database = Database::connect(&Config::new(&file, folder).unwrap()).await.unwrap();
    database.migrate(&[MIGRATIONS]).await.unwrap();
    Store::new(database)
}

fn written(limit: u64) -> Written {
    serde_json::from_value(serde_json::json!({"key": "a:*", "limit": limit, "window": "1s"})).unwrap()
}

#[tokio::test]
async fn a_change_holds_only_at_the_version_its_writer_saw() {
    each_store(async |store| {
        let made = store.create_rule("t", "one", &written(1)).await.unwrap().unwrap();
        assert!(store.create_rule("t", "one", &written(1)).await.unwrap().is_none(), "the id is taken");
        assert!(store.create_rule("u", "one", &written(1)).await.unwrap().is_some(), "another tenant's is another");
        let second = store.replace_rule("t", "one", &written(2), Some(made.version)).await.unwrap().unwrap();
        assert!(second.version > made.version);
        assert!(store.replace_rule("t", "one", &written(3), Some(made.version)).await.unwrap().is_none());
        assert!(!store.delete_rule("t", "one", Some(made.version)).await.unwrap());
        assert_eq!(store.rule("t", "one").await.unwrap().unwrap().written.limit, 2);
        assert!(store.delete_rule("t", "one", Some(second.version)).await.unwrap());
        assert!(store.rule("t", "one").await.unwrap().is_none());
        assert!(store.create_rule("t", "one", &written(4)).await.unwrap().is_some(), "a deleted id is free again");
    })
    .await;
}

#[tokio::test]
async fn a_replica_reads_what_it_has_not_seen_deletions_included() {
    each_store(async |store| {
        for id in ["a", "b", "c"] {
            store.create_rule("t", id, &written(1)).await.unwrap().unwrap();
        }
        let (seen, version) = store.changed_rules(0).await.unwrap();
        assert_eq!(seen.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
        let version = version.unwrap();
        assert!(store.changed_rules(version).await.unwrap().1.is_none());
        assert!(store.delete_rule("t", "b", None).await.unwrap());
        let (gone, _) = store.changed_rules(version).await.unwrap();
        assert_eq!(gone.iter().map(|row| (row.id.as_str(), row.is_deleted)).collect::<Vec<_>>(), [("b", true)]);
        let page = store.rules("t", Some("c"), 10).await.unwrap();
        assert_eq!(page.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["a"]);
    })
    .await;
}

#[tokio::test]
async fn a_tenants_rules_end_with_it() {
    each_store(async |store| {
        let made = store.create_rule("t", "one", &written(1)).await.unwrap().unwrap();
        let other = store.create_rule("u", "one", &written(1)).await.unwrap().unwrap();
        store.database.transact_all(end_tenant("t")).await.unwrap().unwrap();
        assert!(store.rule("t", "one").await.unwrap().is_none());
        assert!(store.rule("u", "one").await.unwrap().is_some());
        let (changed, newest) = store.changed_rules(other.version).await.unwrap();
        assert!(changed.len() == 1 && changed[0].is_deleted && newest > Some(made.version));
    })
    .await;
}
