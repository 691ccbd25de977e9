//! What becomes of outcomes that the database never takes, and in which order they are written. On PostgreSQL, whose texts hold
//! no NUL, and whose writers lock one row after the other.

use testkit::{eventually, need};

use super::*;
use crate::{
    delivery::Status,
    store::tests::{MINUTE, claim, event, open, record, take_in},
};

/// One such outcome, and none of its batch was written: all of their receivers were called again after every lease.
#[tokio::test]
async fn an_outcome_that_is_never_taken_is_written_without_its_words_and_takes_no_other_along() {
    let server = need!(testkit::postgres());
    let store = open(&server.url(), std::path::Path::new("data")).await;
    take_in(&store, (0..5).map(|number| event(&number.to_string(), 1)).collect()).await;
    let claimed = claim(&store, "w").await;
    let mut records: Vec<Record> =
        claimed.iter().map(|delivery| record(delivery, Status::Retrying, Some(MINUTE))).collect();
    records[3].last_error = Some("they said \0".to_owned());
    write(&store, records.into(), true).await;
    for (place, delivery) in claimed.iter().enumerate() {
        let now = store.delivery("acme", &delivery.id).await.unwrap().unwrap();
        let words = if place == 3 { UNSAID } else { "because" };
        assert_eq!((now.status, now.attempts, now.last_error.as_deref()), (Status::Retrying, 1, Some(words)));
    }
    assert_eq!(claim(&store, "w").await.len(), 0, "none is due before its time");
}

/// In the order of landings and renewals: two writers that take the same rows the other way round wait for each other for ever.
#[tokio::test]
async fn outcomes_are_written_in_the_order_of_their_ids() {
    let server = need!(testkit::postgres());
    let store = open(&server.url(), std::path::Path::new("data")).await;
    let holder = store.postgres().unwrap().client().await.unwrap();
    let count = |query: &str| server.sql(&format!("SELECT count(*) FROM ({query}) AS found"))[0][0].clone().unwrap();
    take_in(&store, (0..5).map(|number| event(&number.to_string(), 1)).collect()).await;
    // The first outcome of a delivery is written by another statement than those after it.
    for is_first in [true, false] {
        let claimed = claim(&store, "w").await;
        assert!(claimed.len() == 5 && claimed.iter().all(|delivery| delivery.in_flight.is_some() == is_first));
        // Whoever looks for it gives it a row.
        store.delivery("acme", &claimed[0].id).await.unwrap().unwrap();
        let soon = Some(Duration::ZERO);
        let mut records: Vec<Record> =
            claimed.iter().map(|delivery| record(delivery, Status::Retrying, soon)).collect();
        records.sort_by(|a, b| b.delivery.cmp(&a.delivery));
        let first = &records[4].delivery;
        holder.batch_execute(&format!("BEGIN; SELECT FROM deliveries WHERE id = '{first}' FOR UPDATE")).await.unwrap();
        let meanwhile = async {
            let waiting =
                "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
            eventually(MINUTE, "it to wait for the first", async || count(waiting) == "1").await;
            assert_eq!(count("SELECT FROM deliveries FOR UPDATE SKIP LOCKED"), "4", "it holds none of the others");
            holder.batch_execute("ROLLBACK").await.unwrap();
        };
        tokio::join!(write(&store, records.into(), true), meanwhile);
    }
}
