//! Many processes on one database at once: one migrates, the others wait, all work.

use serde_json::json;
use testkit::need;

use crate::support::{Backend, Call, MASTER_KEY, Setup, Tidegate, each_backend};

each_backend! {
    ten_migrations_at_once_apply_each_step_once
    migrating_again_changes_nothing
}

/// `migrate`, in a folder that all of a test share.
fn migrate(backend: &Backend, shared: &Setup) -> Setup {
    let data = shared.folder().join("data");
    backend.under(Setup::command(&["migrate"]).env("TIDEGATE__SERVER__DATA_DIR", data.to_str().unwrap()))
}

fn ten_migrations_at_once_apply_each_step_once(backend: &Backend) {
    let shared = Setup::command(&["migrate"]);
    let running: Vec<Tidegate> = (0..10).map(|_| migrate(backend, &shared).spawn()).collect();
    let outputs: Vec<String> =
        running.into_iter().map(|process| process.wait(crate::support::SOON).succeeded().stdout).collect();
    let mut applied: Vec<&str> =
        outputs.iter().flat_map(|output| output.lines()).filter(|line| line.starts_with("applied ")).collect();
    let total = applied.len();
    applied.sort_unstable();
    applied.dedup();
    assert!(total >= 1 && applied.len() == total, "{outputs:?}");
    assert_eq!(outputs.iter().filter(|output| output.contains("up to date")).count(), 9, "{outputs:?}");
}

fn migrating_again_changes_nothing(backend: &Backend) {
    let shared = Setup::command(&["migrate"]);
    let first = migrate(backend, &shared).run().succeeded().stdout;
    assert!(first.starts_with("applied tenancy V1__tenancy"), "{first}");
    assert_eq!(migrate(backend, &shared).run().succeeded().stdout, "The schema is up to date.\n");
}

#[test]
fn ten_replicas_start_at_once_on_a_fresh_database() {
    let postgres = need!(testkit::postgres());
    let start = || Setup::locked().env("DATABASE_URL", &postgres.url()).spawn();
    let mut replicas: Vec<Tidegate> = (0..10).map(|_| start()).collect();
    replicas.iter_mut().for_each(Tidegate::wait_until_ready);
    let history = postgres.sql("SELECT count(*) FROM migrations_tenancy");
    assert_eq!(history[0][0].as_deref(), Some("2"), "each migration once");
    // What one writes, the others see.
    let create = Call::post("/admin/tenants/default/keys", serde_json::json!({"name": "shared"})).admin();
    let made = create.to(replicas[0].addr()).expect(201);
    let key = made["key"].as_str().unwrap();
    for replica in &replicas {
        Call::get("/v1/me").key(key).to(replica.addr()).expect(200);
    }
    replicas.iter().for_each(Tidegate::terminate);
    for replica in replicas {
        replica.wait(crate::support::SOON).succeeded();
    }
}

/// Where replicas may not change the schema, another role migrates beforehand.
#[test]
fn a_role_that_may_only_read_and_write_rows_serves_what_another_has_migrated() {
    let postgres = need!(testkit::postgres());
    let command = |args: &[&str], url: &str| Setup::command(args).env("DATABASE_URL", url);
    command(&["migrate"], &postgres.url()).run().succeeded();
    let url = postgres.url_for_rows_alone();
    assert_eq!(command(&["migrate"], &url).run().succeeded().stdout, "The schema is up to date.\n");
    command(&["keys", "create", "--name", "by hand"], &url).run().succeeded();
    let serve = || Setup::serve().env("DATABASE_URL", &url).env("TIDEGATE_MASTER_KEY", MASTER_KEY);
    let replica = serve().start();
    let sink = crate::sink::sink(&["--quiet"]);
    let new = json!({"url": format!("http://{}", sink.addr()), "event_types": ["a"], "ordering": "key"});
    Call::post("/v1/subscriptions", new).to(replica.addr()).expect(201);
    let event = json!({"type": "a", "data": 1, "ordering_key": "k"});
    Call::post("/v1/events", event).to(replica.addr()).expect(202);
    testkit::wait_until(crate::support::SOON, "the delivery", || {
        replica.get("/v1/deliveries?status=delivered").expect(200)["data"].as_array().unwrap().len() == 1
    });
    replica.stop().succeeded();
    let day = |offset: &str| {
        postgres.sql(&format!("SELECT to_char(now() AT TIME ZONE 'UTC' + '{offset}', 'YYYYMMDD')"))[0][0]
            .clone()
            .unwrap()
    };
    postgres.sql(&format!("DROP TABLE events_{}", day("4 days")));
    let replica = serve().start();
    testkit::wait_until(crate::support::SOON, "the warning", || {
        replica.output().contains("`tidegate migrate` now and once a day")
    });
    replica.stop().succeeded();
    postgres.sql(&format!("DROP TABLE events_{}", day("0 days")));
    for ended in [serve().run(), command(&["migrate"], &url).run()] {
        assert_eq!(ended.code, Some(1), "{}", ended.output);
        assert!(ended.output.contains("`tidegate migrate` now and once a day"), "{}", ended.output);
    }
    command(&["migrate"], &postgres.url()).run().succeeded();
    serve().start().stop().succeeded();
}

/// `database.pool_size`, and one more for a worker.
#[test]
fn a_process_holds_no_more_connections_than_its_settings_say() {
    let postgres = need!(testkit::postgres());
    let replica = Setup::serve().env("DATABASE_URL", &postgres.url()).env("TIDEGATE__DATABASE__POOL_SIZE", "2").start();
    let sink = crate::sink::sink(&["--quiet"]);
    let new = json!({"url": format!("http://{}", sink.addr()), "event_types": ["a"]});
    Call::post("/v1/subscriptions", new).to(replica.addr()).expect(201);
    for _ in 0..100 {
        Call::post("/v1/events", json!({"type": "a", "data": 1})).to(replica.addr()).expect(202);
    }
    testkit::wait_until(crate::support::SOON, "the deliveries", || {
        replica.get("/v1/deliveries?status=delivered&limit=1000").expect(200)["data"].as_array().unwrap().len() == 100
    });
    let held =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'tidegate'";
    assert_eq!(postgres.sql(held)[0][0].as_deref(), Some("3"));
}

#[test]
fn who_may_not_migrate_is_told_who_may() {
    let postgres = need!(testkit::postgres());
    let url = postgres.url_for_rows_alone();
    for setup in [Setup::command(&["migrate"]), Setup::command(&["keys", "list"]), Setup::serve()] {
        let ended = setup.env("DATABASE_URL", &url).run();
        assert_eq!(ended.code, Some(1), "{}", ended.output);
        assert!(ended.output.contains("as the role that owns the tables"), "{}", ended.output);
    }
}

/// `keys list` of a newer version used to migrate production in passing.
#[test]
fn keys_make_a_new_database_ready_and_leave_the_schema_of_another_alone() {
    let postgres = need!(testkit::postgres());
    let keys = || Setup::command(&["keys", "list"]).env("DATABASE_URL", &postgres.url()).run();
    keys().succeeded();
    postgres.sql("DELETE FROM migrations_dispatch WHERE version = 8");
    keys().succeeded();
    postgres.sql("DELETE FROM migrations_tenancy WHERE version = 2");
    let ended = keys();
    assert_eq!(ended.code, Some(1), "{}", ended.output);
    assert!(
        ended.output.contains("lacks V2__deleted") && ended.output.contains("`tidegate migrate`"),
        "{}",
        ended.output
    );
}

#[test]
fn a_key_revoked_on_one_replica_is_refused_by_the_others_within_seconds() {
    let postgres = need!(testkit::postgres());
    let start = || Setup::locked().env("DATABASE_URL", &postgres.url()).start();
    let (here, there) = (start(), start());
    let create = Call::post("/admin/tenants/default/keys", serde_json::json!({"name": "lost"})).admin();
    let made = create.to(here.addr()).expect(201);
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    let status = |replica: &Tidegate| Call::get("/v1/me").key(key).to(replica.addr()).status;
    assert_eq!((status(&here), status(&there)), (200, 200));
    Call::new("DELETE", &format!("/admin/tenants/default/keys/{id}")).admin().to(here.addr());
    assert_eq!(status(&here), 401, "at once where it was revoked");
    testkit::wait_until(std::time::Duration::from_secs(5), "the other to notice", || status(&there) == 401);
}
