//! One suite for both databases: what a writer of rules is promised, and how replicas learn of it.

use std::future::Future;

use platform::{
    db::{Config, File, Query, Value},
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
    database.migrate(&[tenancy::MIGRATIONS, MIGRATIONS]).await.unwrap();
    Store::new(database)
}

fn written(limit: u64) -> Written {
    serde_json::from_value(serde_json::json!({"key": "a:*", "limit": limit, "window": "1s"})).unwrap()
}

#[tokio::test]
async fn a_change_holds_only_at_the_version_its_writer_saw() {
    each_store(async |store| {
        let made = store.create_rule("me", "t", "one", &written(1)).await.unwrap().unwrap();
        assert!(store.create_rule("me", "t", "one", &written(1)).await.unwrap().is_none(), "the id is taken");
        assert!(
            store.create_rule("me", "u", "one", &written(1)).await.unwrap().is_some(),
            "another tenant's is another"
        );
        let second = store.replace_rule("me", "t", "one", &written(2), Some(made.version)).await.unwrap().unwrap();
        assert!(second.version > made.version);
        assert!(store.replace_rule("me", "t", "one", &written(3), Some(made.version)).await.unwrap().is_none());
        assert!(!store.delete_rule("me", "t", "one", Some(made.version)).await.unwrap());
        assert_eq!(store.rule("t", "one").await.unwrap().unwrap().written.limit, 2);
        assert!(store.delete_rule("me", "t", "one", Some(second.version)).await.unwrap());
        assert!(store.rule("t", "one").await.unwrap().is_none());
        assert!(
            store.create_rule("me", "t", "one", &written(4)).await.unwrap().is_some(),
            "a deleted id is free again"
        );
    })
    .await;
}

/// As a replica reads them: page by page, until there is nothing more.
async fn read_on(store: &Store, place: &mut Place) -> Vec<String> {
    let mut read = Vec::new();
    while let (changes, Some(last)) = store.changes(place).await.unwrap() {
        read.extend(changes.into_iter().map(|change| match change {
            Change::Written(row) => row.id,
            Change::Deleted { tenant, id } => format!("{tenant} without {id}"),
        }));
        *place = last;
    }
    read
}

#[tokio::test]
async fn a_replica_reads_what_it_has_not_seen_deletions_included() {
    each_store(async |store| {
        for id in ["a", "b", "c"] {
            store.create_rule("me", "t", id, &written(1)).await.unwrap().unwrap();
        }
        let mut place = Place::default();
        assert_eq!(read_on(&store, &mut place).await, ["a", "b", "c"]);
        assert!(store.delete_rule("me", "t", "b", None).await.unwrap());
        assert_eq!(read_on(&store, &mut place).await, ["t without b"]);
        let page = store.rules("t", Some("c"), 10).await.unwrap();
        assert_eq!(page.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["a"]);
    })
    .await;
}

#[tokio::test]
async fn a_tenants_rules_end_with_it() {
    each_store(async |store| {
        store.create_rule("me", "t", "one", &written(1)).await.unwrap().unwrap();
        store.create_rule("me", "u", "one", &written(1)).await.unwrap().unwrap();
        let mut place = Place::default();
        read_on(&store, &mut place).await;
        store.database.transact_all(end_tenant("t")).await.unwrap().unwrap();
        assert!(store.rule("t", "one").await.unwrap().is_none());
        assert!(store.rule("u", "one").await.unwrap().is_some());
        assert_eq!(read_on(&store, &mut place).await, ["t without one"]);
    })
    .await;
}

/// All rules of a tenant end in one version, which may be more than a page.
#[tokio::test]
async fn a_replica_reads_in_pages_and_misses_nothing_where_one_ends() {
    each_store(async |store| {
        let insert = |number: u32| {
            let id = format!("rule-{number}");
            query!("create_rule").with([Value::from("t"), id.as_str().into(), json(&written(1)).as_str().into()])
        };
        let made = [bump()].into_iter().chain((0..1_500).map(insert));
        store.database.transact_all(made.collect()).await.unwrap().unwrap();
        let mut place = Place::default();
        assert_eq!(read_on(&store, &mut place).await.len(), 1_500);
        store.database.transact_all(end_tenant("t")).await.unwrap().unwrap();
        assert_eq!(store.changes(&place).await.unwrap().0.len(), 1_000);
        assert_eq!(read_on(&store, &mut place).await.len(), 1_500);
    })
    .await;
}

#[tokio::test]
async fn all_rules_of_a_tenant_have_so_many_bytes_together() {
    each_store(async |store| {
        let key = |number: u32| format!("a:{number:0>1000}");
        let overrides =
            (0..1_500).map(|number| (key(number), crate::rule::Override { limit: 1, window: None, burst: None }));
        let large = Written { overrides: overrides.collect(), ..written(1) };
        let create =
            async |tenant: &str, id: &str, rule: &Written| store.create_rule("me", tenant, id, rule).await.unwrap();
        let replace = async |id: &str, rule: &Written| store.replace_rule("me", "t", id, rule, None).await.unwrap();
        let small = written(1);
        for (id, rule) in [("one", &large), ("two", &large), ("small", &small)] {
            assert!(create("t", id, rule).await.is_some());
        }
        assert!(create("t", "three", &large).await.is_none() && !store.has_room("t", "three", &large).await.unwrap());
        assert!(replace("small", &large).await.is_none() && !store.has_room("t", "small", &large).await.unwrap());
        assert!(replace("one", &large).await.is_some(), "it takes its own place");
        assert!(create("u", "three", &large).await.is_some(), "another tenant has its own");
        assert!(store.delete_rule("me", "t", "two", None).await.unwrap());
        assert!(create("t", "three", &large).await.is_some(), "what is deleted takes no room");
    })
    .await;
}

#[tokio::test]
async fn a_deleted_rule_leaves_no_text_and_in_time_no_row() {
    const ROWS: &str = "SELECT id, rule FROM limit_rules ORDER BY id";
    each_store(async |store| {
        let rows = async || {
            let rows = store.database.fetch(Query { sqlite: ROWS, postgres: ROWS }.with([])).await.unwrap();
            rows.iter().map(|row| (row.text("id"), row.text("rule").len())).collect::<Vec<_>>()
        };
        for id in ["deleted", "kept"] {
            store.create_rule("me", "t", id, &written(1)).await.unwrap().unwrap();
        }
        store.delete_rule("me", "t", "deleted", None).await.unwrap();
        store.forget_deleted(Duration::from_secs(60)).await.unwrap();
        assert_eq!(rows().await[0], ("deleted".to_owned(), 2));
        // One millisecond ago is long ago once that has passed.
        while rows().await.len() == 2 {
            store.forget_deleted(Duration::from_millis(1)).await.unwrap();
        }
        assert_eq!(rows().await[0].0, "kept");
    })
    .await;
}
