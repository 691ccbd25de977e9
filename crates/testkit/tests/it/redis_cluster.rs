//! A Redis Cluster through the cluster client: all masters serve, slots move, replicas take over.

use std::time::Duration;

use redis::{
    Commands,
    cluster::{ClusterClient, ClusterConnection},
};
use testkit::{need, redis::Cluster, wait_until};

const SOON: Duration = Duration::from_secs(10);

fn connect(cluster: &Cluster) -> ClusterConnection {
    ClusterClient::new(cluster.urls()).unwrap().get_connection().unwrap()
}

/// One key per master, found by trying.
fn key_on(cluster: &Cluster, place: usize) -> String {
    (0..)
        .map(|number| format!("key{number}"))
        .find(|key| cluster.owner_of(cluster.slot_of(key)) == Some(place))
        .unwrap()
}

#[test]
fn every_master_serves_its_third_of_the_slots() {
    let cluster = need!(Cluster::start());
    let mut connection = connect(&cluster);
    for place in 0..3 {
        let key = key_on(&cluster, place);
        let () = connection.set(&key, place).unwrap();
        assert_eq!(connection.get::<_, usize>(&key).unwrap(), place);
        assert_eq!(cluster.node(place).cli(&["GET", &key]), place.to_string());
    }
}

#[test]
fn resharded_keys_are_found_on_their_new_master() {
    let cluster = need!(Cluster::start());
    let mut connection = connect(&cluster);
    let key = key_on(&cluster, 0);
    let slot = cluster.slot_of(&key);
    let () = connection.set(&key, "moves").unwrap();

    cluster.reshard(slot..=slot, 0, 2);
    assert_eq!(cluster.owner_of(slot), Some(2));
    assert_eq!(connection.get::<_, String>(&key).unwrap(), "moves");
    assert_eq!(cluster.node(2).cli(&["GET", &key]), "moves");

    cluster.reshard(0..=99, 0, 1);
    assert_eq!((cluster.owner_of(0), cluster.owner_of(99), cluster.owner_of(100)), (Some(1), Some(1), Some(0)));
}

#[test]
fn a_replica_takes_over_on_order_and_after_a_kill() {
    let cluster = need!(Cluster::with_replicas());
    let mut connection = connect(&cluster);
    let keys: Vec<String> = (0..3).map(|place| key_on(&cluster, place)).collect();
    for key in &keys {
        let () = connection.set(key, key).unwrap();
    }
    // A replica that has just come hears of writes within a second: what it does not have yet is lost with its master.
    for replica in 3..6 {
        wait_until(SOON, "a replica to have its master's key", || cluster.node(replica).cli(&["DBSIZE"]) == "1");
    }
    cluster.failover(1);
    assert_eq!(cluster.owner_of(cluster.slot_of(&keys[1])), Some(4));
    assert_eq!(connection.get::<_, String>(&keys[1]).unwrap(), keys[1]);

    cluster.kill(2);
    cluster.wait_for_failover(2);
    assert_eq!(cluster.owner_of(cluster.slot_of(&keys[2])), Some(5));
    assert_eq!(connect(&cluster).get::<_, String>(&keys[2]).unwrap(), keys[2]);
    cluster.restart(2);
    cluster.wait_until_whole();
}
