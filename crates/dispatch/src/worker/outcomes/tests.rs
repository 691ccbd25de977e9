//! What becomes of outcomes that the database never takes. On PostgreSQL, whose texts hold no NUL.

use testkit::need;

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
