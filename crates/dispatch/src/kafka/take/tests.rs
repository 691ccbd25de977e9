//! What a batch does with a record that makes us panic. On PostgreSQL, whose client panics at a time it cannot express.

use std::path::Path;

use platform::{
    db::{Config, Database, File},
    http_client::Reachable,
    secret::Secret,
    shutdown::Tasks,
};
use tenancy::vault::Vault;
use testkit::{eventually, need};
use time::macros::datetime;

use super::*;
use crate::announce::Announcer;

async fn connect(url: &str) -> Database {
    let file = File { url: Secret::new(url), pool_size: 4, ca_file: String::new() };
    Database::connect(&Config::new(&file, Path::new("data")).unwrap()).await.unwrap()
}

async fn taking(url: &str, tasks: &Tasks) -> Taking {
    let database = connect(url).await;
    database.migrate(&[tenancy::MIGRATIONS, crate::store::MIGRATIONS]).await.unwrap();
    let (store, tenants) = (Store::new(database.clone()), tenancy::Store::new(database));
    store.prepare_days().await.unwrap();
    let catalog = Catalog::new(store.clone(), Vault::new(&Secret::new("00".repeat(32))).unwrap(), Reachable::default());
    let workers = Workers { here: None, elsewhere: Announcer::default() };
    let lease = Lease { owner: "nobody".into(), length: Duration::from_secs(60) };
    let max_event = 1000;
    let config = crate::config::Config {
        poll_interval: Duration::from_secs(1),
        batch_size: 10,
        lease: lease.length,
        max_in_flight: 10,
        max_events: 10,
        max_event,
        retention: Duration::from_secs(86_400),
        allow_networks: Vec::new(),
    };
    let intake = Intake::start(store.clone(), catalog.clone(), workers.clone(), lease.clone(), &config, None, tasks);
    Taking { store, tenants, catalog, intake, workers, lease, topic: "t".into(), max_event }
}

fn record(offset: i64) -> Incoming {
    let value = format!(r#"{{"id":"e{offset}","type":"a.b","data":1}}"#).into_bytes();
    Incoming { partition: 0, offset, at_ms: 0, key: None, value, headers: Vec::new(), is_cut: false }
}

/// One such record in a batch, and all others of the batch were neither written nor rejected: they were gone.
#[tokio::test]
async fn a_record_that_makes_us_panic_is_kept_and_takes_no_other_along() {
    let postgres = need!(testkit::postgres());
    let (tasks, give_up) = (Tasks::new(), CancellationToken::new());
    let taking = taking(&postgres.url(), &tasks).await;
    let mut tenants = Tenants::new(taking.tenants.clone());
    let records: Vec<Incoming> = (0..5).map(record).collect();
    assert!(tenants.learn(&records, &give_up).await);
    let mut routed = taking.route(records, &tenants);
    routed.events[3].deliver_at = Some(datetime!(9999-12-31 23:59:59 -0:01));
    assert!(taking.write(routed, &give_up).await);
    for offset in [0, 1, 2, 4] {
        assert!(taking.store.event("default", &format!("e{offset}")).await.unwrap().is_some(), "{offset}");
    }
    let kept = taking.store.rejected(None, None, None, 10).await.unwrap();
    let kept: Vec<(i64, &str)> = kept.iter().map(|record| (record.offset, record.reason.as_str())).collect();
    assert_eq!(kept, [(3, "unstorable")]);
}

/// Both were taken for a fault of the record once, and an event that had been accepted was put aside for good.
#[tokio::test]
async fn records_wait_until_the_database_lets_them_in() {
    let server = need!(testkit::postgres());
    let (tasks, give_up) = (Tasks::new(), CancellationToken::new());
    let taking = taking(&server.url(), &tasks).await;
    let (database, stalls) = (server.database(), taking.store.stalls());
    let Database::Postgres(other) = connect(&server.url()).await else { unreachable!() };
    let mut holder = deadpool_postgres::Object::take(other.client().await.unwrap());
    let pid: i32 = holder.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let set = |setting: &str| {
        drop(server.sql(&format!("BEGIN READ WRITE; ALTER DATABASE {database} {setting}; COMMIT")));
        // New connections have it.
        drop(server.sql(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
            WHERE datname = current_database() AND pid NOT IN (pg_backend_pid(), {pid})"
        )));
    };
    let cases = [("events", "SET statement_timeout = '200ms'"), ("jobs", "SET default_transaction_read_only = on")];
    for (offset, (locked, setting)) in (0..).zip(cases) {
        let mut tenants = Tenants::new(taking.tenants.clone());
        assert!(tenants.learn(&[record(offset)], &give_up).await);
        let routed = taking.route(vec![record(offset)], &tenants);
        let lock = holder.transaction().await.unwrap();
        lock.batch_execute(&format!("LOCK TABLE {locked} IN SHARE MODE")).await.unwrap();
        set(setting);
        // Past the connections that were lost, so that what fails next is of the setting.
        let reads = async || taking.store.event("default", "none").await.is_ok();
        eventually(Duration::from_secs(30), "the new connections", reads).await;
        let writing = taking.write(routed, &give_up);
        tokio::pin!(writing);
        let told = eventually(Duration::from_secs(30), "it to stall", async || stalls.longest().is_some());
        tokio::select! {
            _ = &mut writing => panic!("{setting}: it was done with, and not written"),
            _ = told => (),
        }
        lock.rollback().await.unwrap();
        set("RESET ALL");
        assert!(writing.await);
        assert_eq!(stalls.longest(), None);
        assert!(taking.store.event("default", &format!("e{offset}")).await.unwrap().is_some(), "{setting}");
    }
    assert!(taking.store.rejected(None, None, None, 10).await.unwrap().is_empty());
}

/// A worker left while the database was away, and gave a batch up. The next one found the database back and was written: its events
/// overtook those of the same line that the partition's next reader wrote later.
#[tokio::test]
async fn nothing_is_written_behind_a_batch_that_was_given_up() {
    let postgres = need!(testkit::postgres());
    let (tasks, give_up) = (Tasks::new(), CancellationToken::new());
    let taking = taking(&postgres.url(), &tasks).await;
    let mut tenants = Tenants::new(taking.tenants.clone());
    assert!(tenants.learn(&[record(0)], &give_up).await);
    let next = taking.route(vec![record(0)], &tenants);
    give_up.cancel();
    assert!(!taking.write(next, &give_up).await);
    assert!(taking.store.event("default", "e0").await.unwrap().is_none());
}

/// The API takes none that is later, and neither does who reads what came past it.
#[tokio::test]
async fn an_event_for_the_far_future_is_rejected_by_the_clock_that_it_came_by() {
    let postgres = need!(testkit::postgres());
    let (tasks, give_up) = (Tasks::new(), CancellationToken::new());
    let taking = taking(&postgres.url(), &tasks).await;
    let mut tenants = Tenants::new(taking.tenants.clone());
    let due = |deliver_at: &str| {
        let value = format!(r#"{{"type":"a.b","data":1,"deliver_at":"{deliver_at}"}}"#).into_bytes();
        let at_ms = datetime!(2030-01-01 0:00 UTC).unix_timestamp() * 1000;
        Incoming { at_ms, value, ..record(0) }
    };
    let records = vec![due("2031-01-01T00:00:00Z"), due("2031-02-01T00:00:00Z")];
    assert!(tenants.learn(&records, &give_up).await);
    let routed = taking.route(records, &tenants);
    let [rejected] = &routed.rejected[..] else { panic!("{:?}", routed.rejected) };
    assert_eq!((routed.events.len(), rejected.reason), (1, "invalid_event"));
    assert!(rejected.detail.starts_with("deliver_at is at most 366 days ahead"), "{}", rejected.detail);
    assert!(tasks.stop(Duration::ZERO).await);
}
