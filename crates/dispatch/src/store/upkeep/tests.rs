//! Days of PostgreSQL: how they are made, and who waits for it.

use testkit::need;

use super::*;
use crate::{
    delivery::Status,
    store::tests::{MINUTE, claim, event, open, record, take_in},
};

/// A store, what it stands on, and today.
async fn with_days(url: &str) -> (Store, Postgres, Date) {
    let store = open(url, std::path::Path::new("data")).await;
    let postgres = store.postgres().unwrap();
    let today = database_date(&postgres.client().await.unwrap()).await.unwrap();
    (store, postgres, today)
}

/// Gives up long before a test is said to hang.
async fn prepare(store: &Store) -> Result<(), crate::error::Error> {
    tokio::time::timeout(MINUTE / 4, store.prepare_days()).await.expect("it does not wait")
}

/// A day was made under a lock that waits for every reader, and everyone else waited behind it: as long as a dump runs.
#[tokio::test]
async fn a_day_is_made_while_someone_reads_and_nobody_waits() {
    let server = need!(testkit::postgres());
    let (store, postgres, today) = with_days(&server.url()).await;
    let last = today + time::Duration::days(DAYS_AHEAD);
    drop(server.sql(&format!("DROP TABLE {}", partition("events", last))));
    let reader = postgres.client().await.unwrap();
    reader.batch_execute("BEGIN; SELECT count(*) FROM events").await.unwrap();
    prepare(&store).await.unwrap();
    assert_eq!(missing_days(&reader, today).await.unwrap(), []);
    reader.batch_execute("ROLLBACK").await.unwrap();
}

#[tokio::test]
async fn a_day_ahead_that_cannot_be_made_stops_nobody_and_today_does() {
    let server = need!(testkit::postgres());
    let (store, postgres, today) = with_days(&server.url()).await;
    let holder = postgres.client().await.unwrap();
    for (ahead, is_fatal) in [(DAYS_AHEAD, false), (0, true)] {
        drop(server.sql(&format!("DROP TABLE {}", partition("events", today + time::Duration::days(ahead)))));
        holder.batch_execute("BEGIN; LOCK TABLE events IN SHARE MODE").await.unwrap();
        assert_eq!(prepare(&store).await.is_err(), is_fatal);
        holder.batch_execute("ROLLBACK").await.unwrap();
    }
    prepare(&store).await.unwrap();
    assert_eq!(missing_days(&holder, today).await.unwrap(), []);
}

#[tokio::test]
async fn a_day_has_the_indexes_and_defaults_of_its_table_and_is_cleaned_early() {
    let server = need!(testkit::postgres());
    let (_, _, today) = with_days(&server.url()).await;
    for (table, _) in PARTITIONED {
        let day = partition(table, today);
        let count = |what: &str| server.sql(what)[0][0].clone().unwrap().parse::<u32>().unwrap();
        let of_table = count(&format!("SELECT count(*) FROM pg_index WHERE indrelid = '{table}'::regclass"));
        let of_day = count(&format!("SELECT count(*) FROM pg_index WHERE indrelid = '{day}'::regclass"));
        let attached = count(&format!(
            "SELECT count(*) FROM pg_index JOIN pg_inherits ON inhrelid = indexrelid WHERE indrelid = '{day}'::regclass"
        ));
        assert_eq!((of_day, attached), (of_table, of_table), "{table}");
        let defaults = |of: &str| {
            let sql = "SELECT string_agg(attname || ' ' || attnotnull || coalesce(pg_get_expr(adbin, adrelid), ''), ', ' ORDER BY attname) \
                FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum";
            server.sql(&format!("{sql} WHERE attrelid = '{of}'::regclass AND attnum > 0 AND NOT attisdropped"))
        };
        assert_eq!(defaults(&day), defaults(table));
        let options = server.sql(&format!("SELECT reloptions::text FROM pg_class WHERE oid = '{day}'::regclass"));
        assert!(options[0][0].as_deref().unwrap().contains("autovacuum_vacuum_scale_factor=0.02"), "{options:?}");
    }
}

/// Without today's attempts no outcome could be written: a receiver that had said 200 was called again and again.
#[tokio::test]
async fn a_day_that_is_missing_is_made_when_something_is_to_be_written_into_it() {
    let server = need!(testkit::postgres());
    let (store, _, today) = with_days(&server.url()).await;
    let lose = |table: &str| drop(server.sql(&format!("DROP TABLE {}", partition(table, today))));
    for table in ["events", "deliveries"] {
        lose(table);
        take_in(&store, vec![event(table, 1)]).await;
    }
    lose("attempts");
    let claimed = claim(&store, "w").await;
    let written = store.record(vec![record(&claimed[0], Status::Delivered, None)]).await;
    assert_eq!(written.unwrap(), 1);
}
