//! Many processes on one database at once: one migrates, the others wait, all work.

use testkit::need;

use crate::support::{Backend, Call, Setup, Tidegate, each_backend};

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
