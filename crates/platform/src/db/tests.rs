//! One suite for both databases: whatever holds on SQLite holds on PostgreSQL.

use std::future::Future;

use testkit::need;

use super::*;
use crate::db::query::Query;

const SCHEMA: Migrations = Migrations {
    name: "things",
    sqlite: &[("V1__things", "CREATE TABLE things (id TEXT PRIMARY KEY, count INTEGER, at INTEGER, blob BLOB) STRICT")],
    postgres: &[("V1__things", "CREATE TABLE things (id text PRIMARY KEY, count bigint, at timestamptz, blob bytea)")],
};
const NEWER: Migrations = Migrations {
    sqlite: &[SCHEMA.sqlite[0], ("V2__more", "ALTER TABLE things ADD COLUMN note TEXT")],
    postgres: &[SCHEMA.postgres[0], ("V2__more", "ALTER TABLE things ADD COLUMN note text")],
    ..SCHEMA
};
const INSERT: Query = Query {
    sqlite: "INSERT INTO things (id, count, at, blob) VALUES (?1, ?2, ?3, ?4) RETURNING id",
    postgres: "INSERT INTO things (id, count, at, blob) VALUES ($1, $2, $3, $4) RETURNING id",
};
const UPDATE: Query = Query {
    sqlite: "UPDATE things SET count = ?2 WHERE id = ?1 RETURNING id",
    postgres: "UPDATE things SET count = $2 WHERE id = $1 RETURNING id",
};
const SELECT: Query = Query {
    sqlite: "SELECT id, count, at, blob, count > 1 AS is_many FROM things ORDER BY id",
    postgres: "SELECT id, count, at, blob, count > 1 AS is_many FROM things ORDER BY id",
};

fn file(url: &str) -> File {
    File { url: Secret::new(url), pool_size: 4, ca_file: String::new() }
}

/// Runs the case on SQLite, then on a real PostgreSQL.
async fn each_database<F: Future<Output = ()>>(case: impl Fn(Config) -> F) {
    let folder = tempfile::tempdir().unwrap();
    case(Config::new(&file(""), folder.path()).unwrap()).await;
    let postgres = need!(testkit::postgres());
    case(Config::new(&file(&postgres.url()), folder.path()).unwrap()).await;
}

async fn migrated(config: &Config) -> Database {
    let database = Database::connect(config).await.unwrap();
    database.migrate(&[SCHEMA]).await.unwrap();
    database
}

fn thing(id: &str, count: i64) -> Step {
    INSERT.with([id.into(), count.into(), Value::Null, Value::Null])
}

async fn ids(database: &Database) -> Vec<String> {
    database.fetch(SELECT.with([])).await.unwrap().iter().map(|row| row.text("id")).collect()
}

#[tokio::test]
async fn values_come_back_as_they_went_in() {
    each_database(async |config| {
        let database = migrated(&config).await;
        let at = time::OffsetDateTime::from_unix_timestamp_nanos(1_700_000_000_123_000_000).unwrap();
        let step = INSERT.with(["a ü'\"".into(), i64::MAX.into(), Value::Time(at), Value::Bytes(vec![0, 255, 1])]);
        database.transact([step]).await.unwrap().unwrap();
        let rows = database.fetch(SELECT.with([])).await.unwrap();
        assert_eq!(rows[0].text("id"), "a ü'\"");
        assert_eq!(rows[0].optional_time("at"), Some(at));
        assert!(rows[0].flag("is_many"));
        let step = INSERT.with(["z".into(), Value::Null, Value::Null, Value::Null]);
        database.transact([step]).await.unwrap().unwrap();
        let rows = database.fetch(SELECT.with([])).await.unwrap();
        assert_eq!(rows[1].optional_time("at"), None);
        assert!(!rows[1].flag("is_many"));
    })
    .await;
}

#[tokio::test]
async fn a_step_that_must_match_and_does_not_undoes_all() {
    each_database(async |config| {
        let database = migrated(&config).await;
        let missing = UPDATE.with(["nobody".into(), 2_i64.into()]).must_match();
        assert!(database.transact([thing("a", 1), missing]).await.unwrap().is_none());
        assert_eq!(ids(&database).await, [""; 0]);
        let found = UPDATE.with(["a".into(), 2_i64.into()]).must_match();
        assert!(database.transact([thing("a", 1), found]).await.unwrap().is_some());
        assert_eq!(ids(&database).await, ["a"]);
    })
    .await;
}

#[tokio::test]
async fn a_second_row_with_the_same_key_is_a_duplicate_and_no_outage() {
    each_database(async |config| {
        let database = migrated(&config).await;
        database.transact([thing("a", 1)]).await.unwrap();
        let error = database.transact([thing("b", 1), thing("a", 2)]).await.unwrap_err();
        assert!(error.is_duplicate());
        assert!(!error.is_transient());
        assert_eq!(ids(&database).await, ["a"]);
    })
    .await;
}

#[tokio::test]
async fn ten_replicas_migrate_at_once_and_one_does_the_work() {
    each_database(async |config| {
        let replicas =
            (0..10).map(|_| async { Database::connect(&config).await.unwrap().migrate(&[SCHEMA]).await.unwrap() });
        let applied: Vec<Applied> = futures_util::future::join_all(replicas).await.concat();
        assert_eq!(applied, [Applied { set: "things", migration: "V1__things" }]);
    })
    .await;
}

#[tokio::test]
async fn an_older_replica_starts_beside_a_newer_schema() {
    each_database(async |config| {
        let database = migrated(&config).await;
        assert_eq!(database.migrate(&[NEWER]).await.unwrap().len(), 1);
        assert_eq!(database.migrate(&[SCHEMA]).await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn a_migration_changed_after_it_was_applied_is_refused() {
    each_database(async |config| {
        let database = migrated(&config).await;
        let changed =
            Migrations { sqlite: &[("V1__things", "SELECT 1")], postgres: &[("V1__things", "SELECT 1")], ..SCHEMA };
        assert!(matches!(database.migrate(&[changed]).await, Err(Error::Changed("V1__things"))));
    })
    .await;
}

#[test]
fn a_checksum_is_what_databases_already_hold() {
    let migration = migrate::Migration::new(&("V1__things", "SELECT 1"));
    assert_eq!(migration.checksum(), "10156487301137259722");
}

#[tokio::test]
async fn a_broken_migration_leaves_nothing_behind_and_frees_the_lock() {
    each_database(async |config| {
        let database = Database::connect(&config).await.unwrap();
        let broken = Migrations {
            sqlite: &[("V1__things", "CREATE TABLE things (id TEXT); nonsense;")],
            postgres: &[("V1__things", "CREATE TABLE things (id text); nonsense;")],
            ..SCHEMA
        };
        database.migrate(&[broken]).await.unwrap_err();
        let other = Database::connect(&config).await.unwrap();
        assert_eq!(other.migrate(&[SCHEMA]).await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn concurrent_writes_all_stand_and_a_failing_one_fails_alone() {
    each_database(async |config| {
        let database = migrated(&config).await;
        let writes = (0..200).map(|n| {
            let database = database.clone();
            async move { database.transact([thing(&format!("{:03}", n % 150), n)]).await }
        });
        let outcomes = futures_util::future::join_all(writes).await;
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 150);
        assert_eq!(ids(&database).await.len(), 150);
    })
    .await;
}

#[tokio::test]
async fn what_sqlite_answered_for_survives_a_reopen() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::new(&file(""), folder.path()).unwrap();
    let database = migrated(&config).await;
    database.transact([thing("a", 1)]).await.unwrap();
    let again = Database::connect(&config).await.unwrap();
    assert_eq!(ids(&again).await, ["a"]);
}

#[tokio::test]
async fn a_panic_inside_a_sqlite_write_undoes_it_and_the_writer_lives() {
    let folder = tempfile::tempdir().unwrap();
    let Database::Sqlite(sqlite) = migrated(&Config::new(&file(""), folder.path()).unwrap()).await else {
        unreachable!()
    };
    let panicking = sqlite.write(|connection| -> rusqlite::Result<()> {
        connection.execute_batch("INSERT INTO things (id) VALUES ('half')")?;
        panic!("on purpose");
    });
    assert!(panicking.await.is_err());
    assert_eq!(ids(&Database::Sqlite(sqlite)).await, [""; 0]);
}

#[tokio::test]
async fn a_reader_cannot_write() {
    let folder = tempfile::tempdir().unwrap();
    let database = migrated(&Config::new(&file(""), folder.path()).unwrap()).await;
    assert!(database.fetch(thing("a", 1)).await.is_err());
}

#[test]
fn a_wrong_url_names_the_key_and_never_the_password() {
    let folder = std::path::Path::new("data");
    for url in
        ["mysql://root:hunter2@db/x", "postgres://user:hunter2@db:port/x", "hunter2", "postgres://?host=", "sqlite:"]
    {
        let error = Config::new(&file(url), folder).unwrap_err();
        assert_eq!(error.key, "database.url", "{url}");
        assert!(!error.problem.contains("hunter2"), "{}", error.problem);
    }
    assert!(matches!(Config::new(&file(""), folder), Ok(Config::Sqlite(path)) if path == folder.join("tidegate.db")));
}

#[test]
fn the_modes_of_other_clients_mean_tls_that_is_checked() {
    for mode in ["verify-full", "verify-ca", "require"] {
        let url = format!("postgres://user:sslmode=verify-ca@db/x?sslmode={mode}&connect_timeout=3");
        let Ok(Config::Postgres(config)) = Config::new(&file(&url), Path::new("data")) else { panic!("{mode}") };
        assert!(format!("{config:?}").contains("ssl_mode: Require"), "{config:?}");
    }
    assert!(Config::new(&file("postgres://db/x?sslmode=nonsense"), Path::new("data")).is_err());
}

/// Says yes to TLS as PostgreSQL does, and shows this certificate.
async fn certified(certificate: &rcgen::Certificate, key: &rcgen::KeyPair) -> u16 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(rustls::crypto::aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    crate::shutdown::Tasks::new().spawn("postgres", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.read_exact(&mut [0; 8]).await.unwrap();
            stream.write_all(b"S").await.unwrap();
            drop(tokio_rustls::TlsAcceptor::from(Arc::new(config.clone())).accept(stream).await);
        }
    });
    port
}

/// Debian's PostgreSQL shows a certificate of its own from the first day; "does not answer" sent people astray.
#[tokio::test]
async fn a_certificate_that_is_not_trusted_says_what_to_do() {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    let folder = tempfile::tempdir().unwrap();
    let key = KeyPair::generate().unwrap();
    for (name, is_authority, has_file, says) in [
        ("localhost", false, false, Some("database.ca_file")),
        ("localhost", true, true, Some("CA:FALSE")),
        ("elsewhere.example", false, true, Some("another name")),
        ("localhost", false, true, None),
    ] {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.is_ca = if is_authority { IsCa::Ca(BasicConstraints::Unconstrained) } else { IsCa::ExplicitNoCa };
        let certificate = params.self_signed(&key).unwrap();
        let port = certified(&certificate, &key).await;
        let ca_file = folder.path().join("ca.pem");
        std::fs::write(&ca_file, certificate.pem()).unwrap();
        let mut file = file(&format!("postgres://user@localhost:{port}/x"));
        file.ca_file = if has_file { ca_file.to_str().unwrap().to_owned() } else { String::new() };
        let error =
            Database::connect(&Config::new(&file, folder.path()).unwrap()).await.err().expect("nobody is there");
        let advice = error.distrust();
        match says {
            Some(says) => assert!(advice.is_some_and(|advice| advice.contains(says)), "{says}: {advice:?}, {error:?}"),
            None => assert_eq!(advice, None),
        }
    }
}

/// Holds the writer until all of these are queued.
async fn in_one_group<T>(sqlite: &Sqlite, writes: impl Future<Output = T>) -> T {
    let (began, has_begun) = std::sync::mpsc::channel();
    let (go, may_go) = std::sync::mpsc::channel::<()>();
    let holding = sqlite.write(move |_| {
        began.send(()).unwrap();
        may_go.recv().unwrap();
        Ok(())
    });
    let queued = async {
        tokio::task::spawn_blocking(move || has_begun.recv().unwrap()).await.unwrap();
        tokio::pin!(writes);
        assert!(futures_util::poll!(&mut writes).is_pending());
        go.send(()).unwrap();
        writes.await
    };
    let (held, written) = tokio::join!(holding, queued);
    held.unwrap();
    written
}

/// Two batches in one group: the second fails half-way, so neither is written, and both callers know.
#[tokio::test]
async fn a_batch_that_fails_takes_its_group_with_it_and_nothing_stays() {
    let folder = tempfile::tempdir().unwrap();
    let database = migrated(&Config::new(&file(""), folder.path()).unwrap()).await;
    let Database::Sqlite(sqlite) = &database else { panic!("SQLite is the default") };
    let insert = |connection: &rusqlite::Connection, id: &str| {
        connection.execute("INSERT INTO things (id) VALUES (?1)", [id]).map(drop)
    };
    let good = sqlite.write_batch(move |connection| insert(connection, "good"));
    let bad = sqlite.write_batch(move |connection| {
        insert(connection, "bad")?;
        connection.execute("INSERT INTO nowhere VALUES (1)", []).map(drop)
    });
    let (good, bad) = in_one_group(sqlite, async { tokio::join!(good, bad) }).await;
    assert!(good.is_err_and(|error| error.is_transient()), "it may be sent again");
    assert!(bad.is_err());
    assert_eq!(ids(&database).await, Vec::<String>::new());
    sqlite.write_batch(move |connection| insert(connection, "later")).await.unwrap();
    assert_eq!(ids(&database).await, ["later"]);
}

async fn grow_to(sqlite: &Sqlite, pages: u32) {
    let set = move |connection: &rusqlite::Connection| {
        connection.pragma_update_and_check(None, "max_page_count", pages, |row| row.get::<_, u32>(0)).map(drop)
    };
    sqlite.write(set).await.unwrap();
}

/// A full disk left the replica ready: every event was refused, and no load balancer heard of it.
#[tokio::test]
async fn a_file_that_cannot_grow_is_unfit_until_there_is_room_again() {
    let folder = tempfile::tempdir().unwrap();
    let database = migrated(&Config::new(&file(""), folder.path()).unwrap()).await;
    let Database::Sqlite(sqlite) = &database else { panic!("SQLite is the default") };
    let large = || {
        let payload = Value::Bytes(vec![1; 100_000]);
        database.transact([INSERT.with(["large".into(), Value::Null, Value::Null, payload])])
    };
    grow_to(sqlite, 10).await;
    database.ping().await.expect("what was never tried is not known to fail");
    let error = large().await.unwrap_err();
    assert!(error.is_of_the_disk() && error.is_transient(), "{error:?}");
    for _ in 0..2 {
        let error = database.ping().await.unwrap_err();
        assert!(error.is_of_the_disk(), "{error:?}");
    }
    grow_to(sqlite, 1_000_000).await;
    database.ping().await.expect("it is tried anew each time");
    large().await.unwrap();
    let tables = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name <> 'things'";
    let others = sqlite.read(move |connection| connection.query_row(tables, [], |row| row.get::<_, u32>(0)));
    assert_eq!(others.await.unwrap(), 1, "the migrations, and nothing that was only tried");
}

/// SQLite undoes the whole transaction when the disk is full: the others of the group were told of an internal error,
/// and those behind were written all the same.
#[tokio::test]
async fn a_write_that_finds_no_room_takes_its_group_with_it_and_all_may_try_again() {
    let folder = tempfile::tempdir().unwrap();
    let database = migrated(&Config::new(&file(""), folder.path()).unwrap()).await;
    let Database::Sqlite(sqlite) = &database else { panic!("SQLite is the default") };
    grow_to(sqlite, 10).await;
    let (first, last) = (database.transact([thing("first", 1)]), database.transact([thing("last", 1)]));
    let more = "CREATE TABLE more (filling); INSERT INTO more VALUES (zeroblob(100000))";
    let full = sqlite.write(move |connection| connection.execute_batch(more));
    let (first, full, last) = in_one_group(sqlite, Box::pin(async { tokio::join!(first, full, last) })).await;
    for error in [first.unwrap_err(), full.unwrap_err(), last.unwrap_err()] {
        assert!(error.is_transient(), "{error:?}");
    }
    assert_eq!(ids(&database).await, [""; 0]);
    database.transact([thing("later", 1)]).await.unwrap();
    assert_eq!(ids(&database).await, ["later"]);
}

/// A question of health that was given up left its connection to others, in the middle of the query.
#[tokio::test]
async fn a_postgres_that_stalls_is_given_up_before_the_question_of_health_is() {
    let server = need!(testkit::postgres::Server::start());
    let folder = tempfile::tempdir().unwrap();
    let database = Database::connect(&Config::new(&file(&server.url()), folder.path()).unwrap()).await.unwrap();
    database.ping().await.unwrap();
    server.stop();
    let asked = tokio::time::timeout(crate::health::CHECK_TIMEOUT, database.ping()).await;
    assert!(matches!(asked, Ok(Err(Error::Deadline(_)))), "{asked:?}");
    server.resume();
    database.ping().await.unwrap();
}

/// What PostgreSQL says to a statement on a connection with these settings.
async fn refusal(postgres: &Postgres, settings: &str, statement: &str) -> Error {
    let client = postgres.client().await.unwrap();
    client.batch_execute(settings).await.unwrap();
    let refused = client.batch_execute(statement).await.unwrap_err();
    drop(deadpool_postgres::Object::take(client));
    refused.into()
}

/// Each of these was taken for a fault of the row once, and accepted events were put aside for good because of it.
#[tokio::test]
async fn what_ends_without_a_change_to_the_row_is_passing_and_a_row_that_never_fits_is_not() {
    let server = need!(testkit::postgres());
    let config = Config::new(&file(&server.url()), std::path::Path::new("data")).unwrap();
    let Database::Postgres(postgres) = migrated(&config).await else { unreachable!() };
    let mut holder = postgres.client().await.unwrap();
    holder.batch_execute("CREATE TABLE days (id text, n int CHECK (n > 0)) PARTITION BY RANGE (id)").await.unwrap();
    holder.batch_execute("CREATE TABLE days_a PARTITION OF days FOR VALUES FROM ('a') TO ('b')").await.unwrap();
    holder.batch_execute("INSERT INTO things (id) VALUES ('known')").await.unwrap();
    let insert = "INSERT INTO things (id) VALUES ('new')";

    let lock = holder.transaction().await.unwrap();
    lock.batch_execute("LOCK TABLE things").await.unwrap();
    let passing = [
        ("57014", "SET statement_timeout = '50ms'", insert),
        ("55P03", "SET lock_timeout = '50ms'", insert),
        ("25006", "SET default_transaction_read_only = on", "INSERT INTO days VALUES ('a', 1)"),
        ("23514", "", "INSERT INTO days VALUES ('z', 1)"),
        ("42P01", "", "INSERT INTO nowhere VALUES (1)"),
    ];
    for (code, settings, statement) in passing {
        let error = refusal(&postgres, settings, statement).await;
        assert!(matches!(&error, Error::Postgres(error) if error.code().unwrap().code() == code), "{error:?}");
        assert!(error.is_transient(), "{error:?}");
        assert_eq!(error.is_missing_partition(), code == "23514", "{error:?}");
        let problem = Problem::from(error);
        assert_eq!((problem.status().as_u16(), problem.retry_after()), (503, Some(1)));
    }
    lock.rollback().await.unwrap();

    let permanent = [
        ("23505", "INSERT INTO things (id) VALUES ('known')"),
        ("23502", "INSERT INTO things (id) VALUES (NULL)"),
        ("23514", "INSERT INTO days VALUES ('a', 0)"),
        ("22003", "INSERT INTO things (id, count) VALUES ('new', 1e19)"),
        ("54000", "INSERT INTO things (id) SELECT string_agg(md5(n::text), '') FROM generate_series(1, 1000) n"),
    ];
    for (code, statement) in permanent {
        let error = refusal(&postgres, "", statement).await;
        assert!(matches!(&error, Error::Postgres(error) if error.code().unwrap().code() == code), "{error:?}");
        assert!(!error.is_transient() && !error.is_missing_partition(), "{error:?}");
    }
}

/// `.cargo/config.toml` says how SQLite is built; with the crate's own flags each call costs a lock and some checks more.
#[test]
fn sqlite_is_built_as_we_ask() {
    let connection = rusqlite::Connection::open_in_memory().unwrap();
    let mut options = connection.prepare("SELECT compile_options FROM pragma_compile_options").unwrap();
    let options: Vec<String> = options.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let has = |name: &str| options.iter().any(|option| option == name);
    assert!(has("DEFAULT_MEMSTATUS=0") && !has("ENABLE_API_ARMOR") && !has("ENABLE_STAT4"), "{options:?}");
}
