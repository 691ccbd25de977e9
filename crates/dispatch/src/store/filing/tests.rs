//! What is listed before it is filed, when it is filed, and that what is deleted is filed no more.

use std::time::Duration;

use super::*;
use crate::store::{
    search::{DeliveryFilter, EventFilter},
    tests::{claim, event, open, record, take_in},
};

/// Rows of `filed_deliveries`, `filed_events` and `unfiled`.
async fn counts(store: &Store) -> [i64; 3] {
    let Database::Sqlite(sqlite) = &store.database else { panic!("it is SQLite") };
    let count = |connection: &Connection| {
        connection.query_row(
            "SELECT (SELECT count(*) FROM filed_deliveries), (SELECT count(*) FROM filed_events), (SELECT count(*) FROM unfiled)",
            [],
            |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]),
        )
    };
    sqlite.read(count).await.unwrap()
}

#[tokio::test]
async fn what_is_not_filed_yet_is_in_the_lists_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let store = open("", folder.path()).await;
    take_in(&store, vec![event("a", 2)]).await;
    take_in(&store, vec![event("b", 1), event("a", 2)]).await;
    assert_eq!(counts(&store).await, [0, 0, 2], "a repeat is not noted");
    let filter = DeliveryFilter { subscription: Some("sub_1".to_owned()), ..DeliveryFilter::default() };
    assert_eq!(store.deliveries("acme", &filter, None, 10).await.unwrap().len(), 3);
    assert_eq!(counts(&store).await, [3, 2, 0]);
    take_in(&store, vec![event("c", 1)]).await;
    let filter = DeliveryFilter { event_type: Some("order.created".to_owned()), ..DeliveryFilter::default() };
    assert_eq!(store.deliveries("acme", &filter, None, 10).await.unwrap().len(), 4);
    take_in(&store, vec![event("d", 0)]).await;
    let filter = EventFilter { event_type: Some("order.created".to_owned()), ..EventFilter::default() };
    assert_eq!(store.events("acme", &filter, None, 10).await.unwrap().len(), 4);
    take_in(&store, vec![event("e", 1)]).await;
    store.cancel_all_of("acme", "sub_1").await.unwrap();
    assert!(claim(&store, "w").await.is_empty(), "the newest was cancelled too");
}

#[tokio::test]
async fn thousands_are_filed_without_being_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let store = open("", folder.path()).await;
    let of_one_event = AT_ONCE - 1;
    take_in(&store, vec![event("a", of_one_event)]).await;
    let mut delivered = Vec::new();
    while delivered.len() < of_one_event {
        let claimed = claim(&store, "w").await;
        delivered.extend(claimed.iter().map(|one| record(one, crate::delivery::Status::Delivered, None)));
    }
    let last = delivered.split_off(of_one_event - 1);
    store.record(delivered).await.unwrap();
    assert_eq!(counts(&store).await, [0, 0, 2]);
    store.record(last).await.unwrap();
    assert_eq!(counts(&store).await, [i64::try_from(of_one_event).unwrap(), 1, 0]);
}

/// What is deleted must leave nothing in the files: they would only grow.
#[tokio::test]
async fn what_retention_takes_is_filed_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let store = open("", folder.path()).await;
    take_in(&store, vec![event("a", 2), event("b", 0)]).await;
    for claimed in claim(&store, "w").await {
        store.record(vec![record(&claimed, crate::delivery::Status::Delivered, None)]).await.unwrap();
    }
    store.file().await;
    take_in(&store, vec![event("c", 0)]).await;
    let Database::Sqlite(sqlite) = &store.database else { panic!("it is SQLite") };
    sqlite.write(|connection| connection.execute("UPDATE events SET created_at = 0", [])).await.unwrap();
    assert_eq!(store.forget(Duration::ZERO).await.unwrap(), 3);
    assert_eq!(counts(&store).await[..2], [0, 0]);
    store.file().await;
    assert_eq!(counts(&store).await, [0, 0, 0], "what was deleted before it was filed");
}

/// What a process remembers is only as good as its note: one whose commit failed stands for nothing, one that it has not made is not
/// missed.
#[tokio::test]
async fn notes_in_the_file_count_and_not_what_is_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let store = open("", folder.path()).await;
    let Database::Sqlite(sqlite) = &store.database else { panic!("it is SQLite") };
    let filing = store.filing.clone();
    let failed = sqlite.write(move |connection| {
        filing.note(connection, [&event("never", 0)].into_iter())?;
        connection.execute_batch("no such statement")
    });
    failed.await.unwrap_err();
    take_in(&store, vec![event("a", 1)]).await;
    // Another process, which remembers nothing of the first's.
    take_in(&Store::new(store.database.clone()), vec![event("b", 2)]).await;
    assert_eq!(counts(&store).await, [0, 0, 2]);
    let notes = std::mem::take(&mut *store.filing.0.lock());
    assert_eq!(notes.len(), 2, "the failed one and its own");
    sqlite.write(|connection| file_notes(connection, notes)).await.unwrap();
    assert_eq!(counts(&store).await[1..], [2, 0]);
}
