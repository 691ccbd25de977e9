//! What a delivery without a row promises: the same as one that has had its row from the start.

use futures_util::future::join_all;

use super::*;
use crate::{
    delivery::Status,
    place::Place,
    store::{
        Claimed, Found,
        tests::{MINUTE, claim, each_store, event, lease, record, status_of, take_in},
    },
};

async fn count(store: &Store, table: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {table}");
    match &store.database {
        Database::Sqlite(sqlite) => {
            sqlite.read(move |connection| connection.query_row(&sql, [], |row| row.get(0))).await.unwrap()
        }
        Database::Postgres(postgres) => postgres.client().await.unwrap().query_one(&sql, &[]).await.unwrap().get(0),
    }
}

/// An event whose deliveries this process takes into its own hands, and those.
async fn born(store: &Store, id: &str, deliveries: usize, lease: &Lease) -> Vec<Claimed> {
    let mut event = event(id, deliveries);
    event.deliveries.iter_mut().for_each(|delivery| delivery.place = Some(Place::nowhere()));
    let events: Arc<[NewEvent]> = [event].into();
    let accepted = store.take_in(Arc::clone(&events), lease).await.unwrap();
    crate::intake::born(&events, &accepted).0
}

#[tokio::test]
async fn a_delivery_gets_its_row_with_the_first_that_is_said_of_it() {
    each_store(async |store| {
        let me = lease("me", MINUTE);
        let claimed = born(&store, "a", 2, &me).await;
        assert_eq!((claimed.len(), count(&store, "flights").await, count(&store, "deliveries").await), (2, 1, 0));
        store.record(vec![record(&claimed[0], Status::Delivered, None)]).await.unwrap();
        assert_eq!((count(&store, "flights").await, count(&store, "deliveries").await), (1, 1));
        store.record(vec![record(&claimed[1], Status::Retrying, Some(MINUTE))]).await.unwrap();
        store.end_those_over().await.unwrap();
        assert_eq!((count(&store, "flights").await, count(&store, "deliveries").await), (0, 2));
        let [done, waits] = [&claimed[0], &claimed[1]];
        let row = store.delivery("acme", &done.id).await.unwrap().unwrap();
        assert_eq!((row.status, row.attempts, row.deferrals, row.last_error), (Status::Delivered, 1, 0, None));
        assert_eq!((row.event_id.as_str(), row.subscription_id.as_str()), ("a", "sub_1"));
        let row = store.delivery("acme", &waits.id).await.unwrap().unwrap();
        assert_eq!((row.status, row.attempts, row.last_error.as_deref()), (Status::Retrying, 1, Some("because")));
        assert!(row.next_attempt_at.is_some() && row.created_at <= row.updated_at);
        let attempts = store.attempts("acme", &waits.id, None, 10).await.unwrap();
        assert_eq!(attempts.iter().map(|attempt| attempt.number).collect::<Vec<_>>(), [1]);
        assert_eq!(store.record(vec![record(done, Status::Failed, None)]).await.unwrap(), 0, "an outcome counts once");
    })
    .await;
}

#[tokio::test]
async fn landing_changes_nothing_for_the_owner() {
    each_store(async |store| {
        let claimed = born(&store, "a", 3, &lease("me", MINUTE)).await;
        store.record(vec![record(&claimed[0], Status::Delivered, None)]).await.unwrap();
        let filter = crate::store::search::DeliveryFilter::default();
        let listed = store.deliveries("acme", &filter, None, 10).await.unwrap();
        let mut statuses: Vec<_> = listed.iter().map(|delivery| delivery.status.as_str()).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, ["delivered", "processing", "processing"]);
        assert_eq!((count(&store, "flights").await, claim(&store, "other").await.len()), (0, 0), "they are still mine");
        assert!(!store.retry("acme", &claimed[1].id).await.unwrap(), "it is being attempted");
        let rest: Vec<_> = claimed[1..].iter().map(|one| record(one, Status::Retrying, Some(MINUTE))).collect();
        assert_eq!(store.record(rest).await.unwrap(), 2);
        let row = store.delivery("acme", &claimed[1].id).await.unwrap().unwrap();
        assert_eq!((row.status, row.attempts, row.deferrals), (Status::Retrying, 1, 0));
        assert_eq!(store.attempts("acme", &claimed[1].id, None, 10).await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_flight_whose_owner_died_is_flown_by_another_and_the_dead_ones_words_do_not_count() {
    each_store(async |store| {
        let dead = born(&store, "a", 2, &lease("dead", Duration::ZERO)).await;
        store.record(vec![record(&dead[0], Status::Delivered, None)]).await.unwrap();
        assert!(store.next_due().await.unwrap() <= Some(Duration::ZERO), "its poller must not sleep");
        let heirs = claim(&store, "heir").await;
        assert_eq!(heirs.iter().map(|one| (&one.id, one.fence)).collect::<Vec<_>>(), [(&dead[1].id, 2)]);
        assert_eq!(store.record(vec![record(&dead[1], Status::Failed, None)]).await.unwrap(), 0);
        assert_eq!(status_of(&store, &heirs[0].id).await, Status::Processing);
        assert_eq!(store.record(vec![record(&heirs[0], Status::Delivered, None)]).await.unwrap(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_call_that_outlasts_its_lease_keeps_its_delivery() {
    each_store(async |store| {
        let slow = born(&store, "a", 1, &lease("me", Duration::ZERO)).await;
        store.renew("me", vec![(slow[0].id.clone(), slow[0].fence)], MINUTE).await.unwrap();
        assert_eq!(claim(&store, "other").await.len(), 0);
        assert_eq!(store.record(vec![record(&slow[0], Status::Delivered, None)]).await.unwrap(), 1);
    })
    .await;
}

#[tokio::test]
async fn flights_for_anyone_are_shared_and_claimed_whole() {
    each_store(async |store| {
        take_in(&store, vec![event("a", 250)]).await;
        assert_eq!(count(&store, "flights").await, 3);
        let Found { claimed, is_all } = store.claim(&lease("one", MINUTE), 10, 249).await.unwrap();
        assert_eq!((claimed.len(), is_all), (200, false), "what does not fit is left to others");
        assert_eq!(claim(&store, "two").await.len(), 50);
        assert!(store.claim(&lease("one", MINUTE), 10, 249).await.unwrap().is_all);
        let records: Vec<_> = claimed.iter().map(|one| record(one, Status::Delivered, None)).collect();
        assert_eq!(store.record(records).await.unwrap(), 200);
        store.end_those_over().await.unwrap();
        assert_eq!((count(&store, "flights").await, count(&store, "deliveries").await), (1, 200));
    })
    .await;
}

/// With `max_in_flight` below the size of a flight nothing would ever be claimed.
#[tokio::test]
async fn a_flight_that_fits_into_no_room_goes_by_ones() {
    each_store(async |store| {
        take_in(&store, vec![event("a", 30)]).await;
        let Found { claimed, is_all } = store.claim(&lease("w", MINUTE), 8, 8).await.unwrap();
        assert_eq!((claimed.len(), is_all), (0, false));
        assert_eq!(store.claim(&lease("w", MINUTE), 8, 8).await.unwrap().claimed.len(), 8);
        take_in(&store, vec![event("b", 30)]).await;
        store.claim(&lease("w", MINUTE), 8, 8).await.unwrap();
        assert_eq!(count(&store, "flights").await, 0, "rows that are due do not hold them up for ever");
    })
    .await;
}

/// Three hungry workers waited for each other, and then gave rows to what had just come for them.
#[tokio::test]
async fn a_flight_that_another_claimer_is_taking_is_left_to_it() {
    each_store(async |store| {
        let Database::Postgres(postgres) = &store.database else { return };
        take_in(&store, vec![event("a", 3)]).await;
        let mut other = postgres.client().await.unwrap();
        let taking = other.transaction().await.unwrap();
        taking.batch_execute("SELECT FROM flights FOR UPDATE").await.unwrap();
        assert_eq!(claim(&store, "hungry").await.len(), 0);
        taking.rollback().await.unwrap();
        assert_eq!((count(&store, "flights").await, count(&store, "deliveries").await), (1, 0));
        assert_eq!(claim(&store, "hungry").await.len(), 3);
    })
    .await;
}

#[tokio::test]
async fn a_flight_for_anyone_holds_a_mebibyte_at_most() {
    let mut large = event("a", 1);
    large.data = bytes::Bytes::from(format!("\"{}\"", "x".repeat(MOST_BYTES / 3)));
    let events = [(); 7].map(|()| NewEvent { deliveries: event("a", 1).deliveries, ..large.clone() });
    let lease = Lease::nobody();
    let flights = flights_of(&events, |_, _| true, &lease);
    assert_eq!(flights.iter().map(|flight| flight.deliveries.len()).collect::<Vec<_>>(), [2, 2, 2, 1]);
}

/// Its rows would otherwise wait for a year that never comes.
#[tokio::test]
async fn a_flight_leased_for_longer_than_any_lease_is_rescued() {
    each_store(async |store| {
        born(&store, "a", 1, &lease("dead", Duration::from_secs(86_400 * 365))).await;
        assert_eq!(claim(&store, "heir").await.len(), 0);
        assert_eq!(store.rescue(Duration::from_secs(86_400)).await.unwrap(), 1);
        assert_eq!(claim(&store, "heir").await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_backlog_lands_whole_a_few_flights_at_a_time() {
    each_store(async |store| {
        take_in(&store, vec![event("a", 2550)]).await;
        let newest = time::macros::datetime!(9999-12-31 0:00 UTC);
        assert_eq!(store.land_a_few(ALL, newest).await.unwrap(), 10);
        assert_eq!((count(&store, "flights").await, count(&store, "deliveries").await), (16, 1000));
        store.land().await;
        assert_eq!((count(&store, "flights").await, count(&store, "deliveries").await), (0, 2550));
    })
    .await;
}

/// Lists and outcomes write the same rows at the same time: each exists once, nobody's outcome is lost, nobody waits for ever.
#[tokio::test]
async fn landing_beside_outcomes_loses_neither() {
    each_store(async |store| {
        let me = lease("me", MINUTE);
        for round in 0..10 {
            let claimed = born(&store, &format!("e{round}"), 200, &me).await;
            let outcomes = |chosen: fn(usize) -> bool| {
                let mut records: Vec<Record> = claimed
                    .iter()
                    .enumerate()
                    .filter(|(place, _)| chosen(*place))
                    .map(|(_, one)| record(one, Status::Delivered, None))
                    .collect();
                records.reverse();
                store.record(records)
            };
            let outcomes = join_all([outcomes(|place| place % 2 == 0), outcomes(|place| place % 2 == 1)]);
            let (written, _) = tokio::join!(outcomes, join_all([store.land(), store.land()]));
            let written: Vec<usize> = written.into_iter().map(Result::unwrap).collect();
            assert_eq!(written, [100, 100]);
        }
        assert_eq!((count(&store, "deliveries").await, count(&store, "all_attempts").await), (2000, 2000));
        assert!(claim(&store, "other").await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn what_waits_in_flights_is_lag() {
    each_store(async |store| {
        take_in(&store, vec![event("a", 1)]).await;
        match &store.database {
            Database::Sqlite(sqlite) => {
                let older = "UPDATE flights SET created_at = created_at - 60000";
                sqlite.write(|connection| connection.execute(older, []).map(drop)).await.unwrap();
            }
            Database::Postgres(postgres) => {
                let older = "UPDATE flights SET created_at = created_at - interval '1 minute'";
                postgres.client().await.unwrap().batch_execute(older).await.unwrap();
            }
        }
        assert!(store.lag().await.unwrap() >= MINUTE);
        assert!(store.next_due().await.unwrap() <= Some(Duration::ZERO));
    })
    .await;
}

/// One such row, and SQLite claimed nothing at all.
#[tokio::test]
async fn a_delivery_whose_event_is_gone_holds_up_no_other() {
    each_store(async |store| {
        take_in(&store, vec![event("gone", 1), event("there", 1)]).await;
        store.land().await;
        let gone = "DELETE FROM events WHERE id = 'gone'";
        match &store.database {
            Database::Sqlite(sqlite) => {
                sqlite.write(|connection| connection.execute(gone, []).map(drop)).await.unwrap();
            }
            Database::Postgres(postgres) => postgres.client().await.unwrap().batch_execute(gone).await.unwrap(),
        }
        let claimed = claim(&store, "w").await;
        assert_eq!(claimed.iter().map(|one| one.event_id.as_str()).collect::<Vec<_>>(), ["there"]);
    })
    .await;
}
