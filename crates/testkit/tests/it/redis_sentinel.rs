//! A Sentinel set through the sentinel client: the replica takes over when the master is killed.

use redis::{
    Commands,
    sentinel::{SentinelClient, SentinelServerType},
};
use testkit::{need, redis::Sentinel};

#[test]
fn the_replica_takes_over_when_the_master_is_killed() {
    let set = need!(Sentinel::start());
    let name = set.master_name().to_owned();
    let mut client = SentinelClient::build(set.urls(), name, None, SentinelServerType::Master).unwrap();
    let mut connection = client.get_connection().unwrap();
    let () = connection.set("key", "value").unwrap();
    let replicas: u32 = redis::cmd("WAIT").arg(1).arg(5000).query(&mut connection).unwrap();
    assert_eq!(replicas, 1);

    let old = set.kill_master();
    let new = set.wait_for_failover(old);
    assert_ne!(new.port(), old.port());
    let mut connection = client.get_connection().unwrap();
    assert_eq!(connection.get::<_, String>("key").unwrap(), "value");
    let () = connection.set("key", "changed").unwrap();
    assert_eq!(new.cli(&["GET", "key"]), "changed");
}
