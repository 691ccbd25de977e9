//! One suite for both databases.

use std::future::Future;

use platform::{
    db::{Config, File, Query},
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
    database.migrate(&[tenancy::MIGRATIONS, MIGRATIONS]).await.unwrap();
    Store::new(database)
}

/// As a replica reads them: page by page, until there is nothing more.
async fn read_on(store: &Store, place: &mut Place) -> Vec<Change> {
    let mut read = Vec::new();
    while let (changes, Some(last)) = store.changes(place).await.unwrap() {
        read.extend(changes);
        *place = last;
    }
    read
}

#[tokio::test]
async fn a_policy_that_is_written_changed_or_taken_away_is_a_change() {
    each_store(async |store| {
        let (policy, mut place) = (Written::standard(), Place::default());
        assert!(read_on(&store, &mut place).await.is_empty());
        assert!(store.put_policy("me", "acme", "api", &policy).await.unwrap());
        let changes = read_on(&store, &mut place).await;
        assert_eq!((changes.len(), changes[0].target.as_str()), (1, "api"));
        assert_eq!(serde_json::from_str::<Written>(changes[0].policy.as_deref().unwrap()).unwrap(), policy);
        store.take_policy("me", "acme", "api").await.unwrap();
        let later = read_on(&store, &mut place).await;
        assert_eq!(later.len(), 1);
        assert_eq!(later[0].policy, None);
        store.take_policy("me", "acme", "api").await.unwrap();
        store.take_policy("me", "acme", "never there").await.unwrap();
        assert!(read_on(&store, &mut place).await.is_empty(), "there was nothing to take");
        assert_eq!(store.list("acme", None, 10).await.unwrap().len(), 1);
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
        store.put_policy("me", "acme", "c", &Written::default()).await.unwrap();
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
        store.put_policy("me", "acme", "kept", &Written::default()).await.unwrap();
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

/// A replica may be cut off from the database while an old gate loses its policy.
#[tokio::test]
async fn a_gate_is_not_forgotten_before_replicas_know_that_its_policy_is_gone() {
    each_store(async |store| {
        let long_ago = Query {
            sqlite: "UPDATE gates SET used_at = used_at - 3600000",
            postgres: "UPDATE gates SET used_at = used_at - interval '1 hour'",
        };
        for (tenant, target) in [("acme", "api"), ("ended", "api")] {
            assert!(store.put_policy("me", tenant, target, &Written::default()).await.unwrap());
        }
        store.0.transact([long_ago.with([])]).await.unwrap();
        let mut place = Place::default();
        read_on(&store, &mut place).await;
        store.take_policy("me", "acme", "api").await.unwrap();
        store.0.transact_all(end_tenant("ended")).await.unwrap().unwrap();
        store.forget(Duration::from_secs(60)).await.unwrap();
        assert_eq!(read_on(&store, &mut place).await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_tenant_stores_so_many_policies_and_a_replica_reads_them_in_pages() {
    const ALL_BUT_ONE: &str = "INSERT INTO gates (tenant_id, target, policy, version)
        WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < 9999)
        SELECT 'acme', 'gate-' || number, '{}', version FROM numbers, gate_version";
    each_store(async |store| {
        let insert = Query { sqlite: ALL_BUT_ONE, postgres: ALL_BUT_ONE }.with([]);
        store.0.transact([query!("bump_version").with([]), insert]).await.unwrap().unwrap();
        let put = async |tenant: &str, target: &str| {
            store.put_policy("me", tenant, target, &Written::default()).await.unwrap()
        };
        assert!(put("acme", "last").await);
        assert!(!put("acme", "one more").await);
        assert!(put("acme", "gate-1").await, "it has its place");
        assert!(put("other", "api").await, "another tenant has its own");
        store.take_policy("me", "acme", "gate-2").await.unwrap();
        assert!(put("acme", "one more").await);
        let mut place = Place::default();
        assert_eq!(store.changes(&place).await.unwrap().0.len(), 1_000);
        assert_eq!(read_on(&store, &mut place).await.len(), 10_002);
        store.0.transact_all(end_tenant("acme")).await.unwrap().unwrap();
        assert_eq!(read_on(&store, &mut place).await.len(), 10_000);
    })
    .await;
}

#[tokio::test]
async fn a_tenants_policies_end_with_it() {
    each_store(async |store| {
        for tenant in ["acme", "other"] {
            assert!(store.put_policy("me", tenant, "api", &Written::standard()).await.unwrap());
        }
        let mut place = Place::default();
        read_on(&store, &mut place).await;
        store.0.transact_all(end_tenant("acme")).await.unwrap().unwrap();
        let changes = read_on(&store, &mut place).await;
        assert_eq!((changes.len(), changes[0].tenant.as_str(), &changes[0].policy), (1, "acme", &None));
    })
    .await;
}
