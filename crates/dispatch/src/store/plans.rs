//! Every list and every walk goes along the index that was made for it, on both databases: a query that reads a table
//! from end to end is fast in a test and a fault in a year.

use platform::{
    db::{Database, Query},
    id, query,
};
use testkit::need;

use super::{Store, tests::open};

macro_rules! walk {
    ($name:literal) => {
        Query {
            sqlite: include_str!(concat!("sweep/sqlite/", $name, ".sql")),
            postgres: include_str!(concat!("sweep/postgres/", $name, ".sql")),
        }
    };
}
/// Values of a list of deliveries; those of a range of ids are such that it is not empty.
const LISTED: &str = "'t1', 'failed', 'sub_1', 'x', 'type.1', NULL, NULL, '', '~', 50";

/// One tenant's line.
const LINE: &str = "subscription_id_ordering_key_tenant_id";

/// A query, the index that it must walk (its name in SQLite, its columns in PostgreSQL), and values for its parameters.
#[rustfmt::skip]
const PLANS: [(Query, &str, &str, &str); 26] = [
    (query!("claim_due"), "deliveries_ordered (subscription_id=? AND ordering_key=? AND tenant_id=? AND id<?)", LINE, "'w', 60000, 100"),
    (query!("next_in_line"), "deliveries_ordered (subscription_id=? AND ordering_key=? AND tenant_id=? AND id>?)", LINE, "'[\"x\"]'"),
    (query!("changed_subscriptions"), "subscriptions_by_version", "subscriptions_by_version", "1999"),
    (query!("secrets_of"), "(tenant_id=? AND subscription_id=?)", "(tenant_id = $1) AND (subscription_id = asked.id)", "'t1', '[\"sub_1\"]'"),
    (query!("delivery_lag"), "deliveries_due", "due_at_idx", ""),
    (query!("list_deliveries"), "deliveries_of_tenant", "tenant_id_id_idx", LISTED),
    (query!("list_deliveries_of_subscription"), "f USING PRIMARY KEY (tenant_id=? AND subscription_id=? AND id>? AND id<?)", "tenant_id_subscription_id_id_idx", LISTED),
    (query!("list_deliveries_of_event"), "deliveries_of_event", "event_uid_idx", LISTED),
    (query!("list_deliveries_by_status"), "deliveries_by_status", "tenant_id_status_id_idx", LISTED),
    (query!("list_waiting_deliveries"), "deliveries_due", "due_at_idx", LISTED),
    (query!("list_deliveries_by_type"), "f USING PRIMARY KEY (tenant_id=? AND type=? AND uid>? AND uid<?)", "tenant_id_type_uid_idx", "'t1', NULL, NULL, NULL, 'type.1', NULL, NULL, '', '~', 50, '~', ''"),
    (query!("list_events"), "events_of_tenant", "tenant_id_uid_idx", "'t1', NULL, NULL, NULL, '', '~', 50"),
    (query!("list_events_by_type"), "f USING PRIMARY KEY (tenant_id=? AND type=? AND uid>? AND uid<?)", "tenant_id_type_uid_idx", "'t1', 'type.1', NULL, NULL, '', '~', 50"),
    (query!("attempts_of_deliveries"), "PRIMARY KEY (delivery_id=?)", "delivery_id_number_idx", "'t1', '[\"x\"]', NULL"),
    (query!("attempts_of_deliveries"), "deliveries_of_tenant (tenant_id=? AND id=?)", "_pkey", "'t1', '[\"x\"]', NULL"),
    (query!("list_attempts"), "PRIMARY KEY (delivery_id=?)", "delivery_id_number_idx", "'t1', 'x', NULL, 10"),
    (query!("list_attempts"), "deliveries USING PRIMARY KEY (id=?)", "Subplans Removed", "'t1', 'x', NULL, 10"),
    (query!("resume_deliveries"), "deliveries_parked", "subscription_id_tenant_id_id_idx", "'t1', 'sub_1', ''"),
    (query!("parked_though_on"), "deliveries_parked (subscription_id=? AND tenant_id=?)", "subscription_id_tenant_id_id_idx", ""),
    (query!("far_leases"), "deliveries_due", "due_at_idx", "86400000"),
    (query!("rescue_leases"), "PRIMARY KEY (id=?)", "_pkey", "86400000, '[\"x\"]'"),
    (query!("next_of_subscription"), "filed_deliveries USING PRIMARY KEY (tenant_id=? AND subscription_id=? AND id>?)", "tenant_id_subscription_id_id_idx", "'t1', 'sub_1', ''"),
    (query!("cancel_deliveries"), "filed_deliveries USING PRIMARY KEY (tenant_id=? AND subscription_id=? AND id>? AND id<?)", "tenant_id_subscription_id_id_idx", "'t1', 'sub_1', '', '~'"),
    (walk!("look_at_tenant"), "deliveries_of_tenant", "tenant_id_id_idx", "'t1', '', '~', 50"),
    (walk!("look_at_status"), "deliveries_by_status", "tenant_id_status_id_idx", "'t1', '', '~', 50, 'failed'"),
    (walk!("look_at_subscription"), "f USING PRIMARY KEY (tenant_id=? AND subscription_id=? AND id>? AND id<?)", "tenant_id_subscription_id_id_idx", "'t1', '', '~', 50, 'sub_1'"),
];

#[tokio::test]
async fn sqlite_walks_the_index_that_was_made_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = open("", folder.path()).await;
    let Database::Sqlite(sqlite) = &store.database else { panic!("it is SQLite") };
    for (query, index, ..) in PLANS {
        let plan: Vec<String> = sqlite
            .read(move |connection| {
                let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {}", query.sqlite))?;
                let nulls = vec![rusqlite::types::Null; statement.parameter_count()];
                statement.query_map(rusqlite::params_from_iter(nulls), |row| row.get(3))?.collect()
            })
            .await
            .unwrap();
        let plan = plan.join("\n");
        assert!(plan.contains(index), "{index} is not in\n{plan}\nof\n{}", query.sqlite);
        // What a part of the query has found, or a list that came with it, is no table; subscriptions (`s`) are few.
        let is_large = |name: &str| {
            name != "s" && !name.contains("VIRTUAL TABLE") && !plan.contains(&format!("CO-ROUTINE {name}"))
        };
        let scan = plan.lines().filter_map(|line| line.strip_prefix("SCAN ")).find(|name| is_large(name));
        assert!(scan.is_none_or(|scan| scan.contains(index)), "{scan:?} in\n{plan}");
    }
}

/// Twenty tenants with two thousand deliveries each, of which one in fifty failed and one in fifty waits.
async fn fill(store: &Store) {
    let Database::Postgres(postgres) = &store.database else { panic!("it is PostgreSQL") };
    let client = postgres.client().await.unwrap();
    let [event, delivery, attempt] = ["evt", "dlv", "att"].map(|prefix| id::new(prefix)[..20].to_owned());
    client
        .batch_execute(&format!(
            "INSERT INTO events (uid, tenant_id, id, type, data)
             SELECT '{event}' || lpad(n::text, 10, '0'), 't' || n % 20, 'e' || n, 'type.' || n % 300, '1'
             FROM generate_series(1, 40000) n;
             INSERT INTO deliveries (id, tenant_id, event_uid, subscription_id, status, due_at)
             SELECT '{delivery}' || lpad(n::text, 10, '0'), 't' || n % 20, '{event}' || lpad(n::text, 10, '0'),
               'sub_' || n % 400, CASE n % 50 WHEN 0 THEN 'failed' WHEN 1 THEN 'throttled' ELSE 'delivered' END,
               CASE n % 50 WHEN 1 THEN now() + interval '1 hour' END
             FROM generate_series(1, 40000) n;
             INSERT INTO attempts (id, tenant_id, delivery_id, number, started_at, duration_ms)
             SELECT '{attempt}' || lpad(n::text, 10, '0'), 't' || n % 20, '{delivery}' || lpad(n::text, 10, '0'), 1, now(), 5
             FROM generate_series(1, 40000) n;
             INSERT INTO subscriptions (tenant_id, id, settings, version)
             SELECT 't' || n % 20, 'sub_' || n, '{{}}', n FROM generate_series(1, 2000) n;
             INSERT INTO subscription_secrets (tenant_id, subscription_id, id, sealed)
             SELECT 't' || n % 20, 'sub_' || n, 'sec_' || n, '' FROM generate_series(1, 2000) n"
        ))
        .await
        .unwrap();
}

#[tokio::test]
async fn postgres_walks_the_index_that_was_made_for_it() {
    let postgres = need!(testkit::postgres());
    let folder = tempfile::tempdir().unwrap();
    let store = open(&postgres.url(), folder.path()).await;
    fill(&store).await;
    let Database::Postgres(database) = &store.database else { panic!("it is PostgreSQL") };
    let client = database.client().await.unwrap();
    // The plan that a prepared statement settles on: it may not depend on this call's values.
    client.batch_execute("SET plan_cache_mode = force_generic_plan").await.unwrap();
    for (number, (query, ..)) in PLANS.iter().enumerate() {
        client.batch_execute(&format!("PREPARE plan{number} AS {}", query.postgres)).await.unwrap();
    }
    // Every day's partition is new once, and nothing is known about it.
    for statistics in ["none", "fresh"] {
        for (number, (query, _, index, values)) in PLANS.iter().enumerate() {
            let values = if values.is_empty() { String::new() } else { format!("({values})") };
            let rows = client.query(&format!("EXPLAIN EXECUTE plan{number} {values}"), &[]).await.unwrap();
            let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
            let plan = plan.join("\n");
            assert!(
                plan.contains(index),
                "{index} is not in\n{plan}\nof\n{}\nstatistics: {statistics}",
                query.postgres
            );
        }
        client.batch_execute("ANALYZE").await.unwrap();
    }
}
