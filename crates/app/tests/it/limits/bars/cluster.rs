//! Bar 29: a cluster changes its shape under load.

use serde_json::json;
use testkit::redis::Cluster;

use super::{
    SECOND,
    fleet::{Algorithm, DEADLINE, Fleet, Keys, REPLICAS},
    measure::{between, degraded, is_quick_machine, since, wall_us},
    seconds,
};
use crate::{limits::call, support::size};

const OFFERED: u32 = 2_000;

/// Slots move and a master hands over while calls go on: no error, and hardly a decision without Redis.
#[test]
fn a_cluster_is_resharded_and_fails_over_under_load_and_callers_do_not_notice() {
    let cluster = testkit::need!(Cluster::with_replicas());
    // A question that is late because the machine stood still is no question that the cluster did not answer.
    let deadline = DEADLINE * u32::try_from(size(20, 1)).unwrap();
    let fleet = Fleet::each_on(&[url(&cluster).as_str(); REPLICAS], Algorithm::Gcra, deadline);
    let (calls, [began_us, changed_us]) = fleet.during(OFFERED, Keys::Few, |pace| {
        pace.pass(SECOND);
        let began_us = wall_us();
        let slots = slots_in_use(&cluster);
        assert!(slots.len() >= 10, "{slots:?}");
        for slot in slots.iter().take(size(10, slots.len())) {
            let from = cluster.owner_of(*slot).unwrap();
            cluster.reshard(*slot..=*slot, from, (from + 1) % 3);
        }
        cluster.failover(0);
        let changed_us = wall_us();
        pace.pass(seconds(1, 50));
        [began_us, changed_us]
    });
    println!("cluster: {} of {} decided by fallback", degraded(&calls), calls.len());
    assert!(!since(&calls, changed_us).is_empty(), "the load outlasts the change");
    for replica in &fleet.replicas {
        let log = replica.output();
        assert!(!log.contains("CROSSSLOT") && !log.contains("MOVED"), "{log}");
    }
    let batch = |keys: [&str; 2]| json!({"checks": keys.map(|key| json!({"key": key})), "atomic": true});
    call(fleet.replicas[0].addr(), "/v1/limits/check-batch", batch(["{acme}:a", "{acme}:b"])).expect(200);
    let apart = call(fleet.replicas[1].addr(), "/v1/limits/check-batch", batch(["a", "b"]));
    apart.expect_problem(422, "different_slots");
    if !is_quick_machine(&between(&calls, 0, began_us), DEADLINE / 2) {
        return;
    }
    let logs: Vec<String> = fleet.replicas.iter().map(|replica| replica.output()).collect();
    assert!(degraded(&calls) * 1_000 <= calls.len(), "{} of {}: {logs:#?}", degraded(&calls), calls.len());
}

fn url(cluster: &Cluster) -> String {
    let nodes: Vec<String> =
        cluster.urls().iter().map(|url| url.trim_start_matches("redis://").trim_end_matches('/').to_owned()).collect();
    format!("redis+cluster://{}", nodes.join(","))
}

/// Where the keys of the load lie.
fn slots_in_use(cluster: &Cluster) -> Vec<u16> {
    let names = |node: usize| cluster.node(node).cli(&["KEYS", "*few-*"]);
    let names: Vec<String> =
        (0..3).flat_map(|node| names(node).lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    let mut slots: Vec<u16> = names.iter().map(|name| cluster.slot_of(name)).collect();
    slots.sort_unstable();
    slots.dedup();
    slots
}
