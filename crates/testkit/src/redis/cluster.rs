//! A Redis Cluster of one's own: three masters, each with a replica on request, to reshard and to break.
//!
//! Nodes 0 to 2 start as masters with a third of the slots each; node `i + 3` starts as the replica of node `i`.
//! Every change of shape returns only when all living nodes agree on it.

use std::{ops::RangeInclusive, time::Duration};

use super::Server;
use crate::{Server as Kind, Unavailable, ledger, resp::Reply, wait_until};

const MASTERS: usize = 3;
const SLOTS: usize = 16_384;
const AGREED: Duration = Duration::from_secs(90);
/// Short, so that a failover takes seconds; not so short that a busy machine looks like a dead node.
const ARGS: [&str; 8] = [
    "--cluster-enabled",
    "yes",
    "--cluster-node-timeout",
    "2000",
    "--repl-diskless-sync-delay",
    "0",
    "--cluster-allow-replica-migration",
    "no",
];

#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
    ids: Vec<String>,
}

impl Cluster {
    /// Three masters without replicas.
    pub fn start() -> Result<Cluster, Unavailable> {
        Cluster::of(MASTERS)
    }

    /// Three masters with a replica each, which takes over about three seconds after its master is killed.
    pub fn with_replicas() -> Result<Cluster, Unavailable> {
        Cluster::of(2 * MASTERS)
    }

    fn of(count: usize) -> Result<Cluster, Unavailable> {
        let nodes: Vec<Server> = (0..count).map(|_| Server::launch(&ARGS)).collect::<Result<_, _>>()?;
        let ids = nodes.iter().map(|node| node.cli(&["CLUSTER", "MYID"])).collect();
        let cluster = Cluster { nodes, ids };
        cluster.join();
        cluster.follow();
        ledger::used(Kind::Redis);
        Ok(cluster)
    }

    fn join(&self) {
        for (place, node) in self.nodes.iter().enumerate() {
            // Epochs that differ from the start spare the nodes a round of conflicts.
            node.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &(place + 1).to_string()]);
            if place < MASTERS {
                let slots = (place * SLOTS / MASTERS)..((place + 1) * SLOTS / MASTERS);
                let words: Vec<String> = ["CLUSTER", "ADDSLOTS"]
                    .map(str::to_owned)
                    .into_iter()
                    .chain(slots.map(|slot| slot.to_string()))
                    .collect();
                node.cli(&words);
            }
            if place > 0 {
                self.nodes[0].cli(&["CLUSTER", "MEET", "127.0.0.1", &node.port().to_string()]);
            }
        }
        wait_until(AGREED, "all nodes to know each other", || {
            self.nodes.iter().all(|node| {
                let known = node.cli(&["CLUSTER", "NODES"]);
                self.ids.iter().all(|id| known.contains(id.as_str())) && !known.contains("handshake")
            })
        });
        self.wait_until_whole();
    }

    fn follow(&self) {
        for (place, replica) in self.nodes.iter().enumerate().skip(MASTERS) {
            replica.cli(&["CLUSTER", "REPLICATE", &self.ids[place - MASTERS]]);
        }
        wait_until(AGREED, "all replicas to be in step with their masters", || {
            self.nodes
                .iter()
                .skip(MASTERS)
                .all(|node| node.cli(&["INFO", "replication"]).contains("master_link_status:up"))
        });
        wait_until(AGREED, "all nodes to know who replicates whom", || {
            let replicas = self.nodes.len() - MASTERS;
            self.nodes.iter().all(|node| node.cli(&["CLUSTER", "NODES"]).matches("slave").count() == replicas)
        });
    }

    /// Returns when every living node says that all slots are served.
    pub fn wait_until_whole(&self) {
        wait_until(AGREED, "the cluster to serve all slots", || {
            self.living().all(|node| node.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok"))
        });
    }

    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    pub fn node(&self, place: usize) -> &Server {
        &self.nodes[place]
    }

    /// `kill -9` of one node. Without replicas its slots are gone until `restart`.
    pub fn kill(&self, place: usize) {
        self.nodes[place].kill();
    }

    /// Starts a killed node again on its port; it joins the others by itself.
    pub fn restart(&self, place: usize) {
        self.nodes[place].restart();
    }

    pub fn slot_of(&self, key: &str) -> u16 {
        let slot = self.nodes[0].cli(&["CLUSTER", "KEYSLOT", key]);
        slot.parse().expect("KEYSLOT answers with a number")
    }

    /// Which node serves a slot, as the first living node sees it. None where no node does.
    pub fn owner_of(&self, slot: u16) -> Option<usize> {
        let seen_by = self.living().next()?;
        let Ok(Reply::List(ranges)) = seen_by.try_cli(&["CLUSTER", "SLOTS"]) else { return None };
        ranges.iter().find_map(|range| {
            let Reply::List(range) = range else { return None };
            let [Reply::Integer(first), Reply::Integer(last), Reply::List(master), ..] = range.as_slice() else {
                return None;
            };
            let Some(Reply::Text(id)) = master.get(2) else { return None };
            let is_in = (*first..=*last).contains(&i64::from(slot));
            is_in.then(|| self.ids.iter().position(|known| known == id)).flatten()
        })
    }

    /// Moves slots with all their keys from one master to another while the cluster serves, as `redis-cli` would.
    pub fn reshard(&self, slots: RangeInclusive<u16>, from: usize, to: usize) {
        for slot in slots.clone() {
            self.move_slot(&slot.to_string(), from, to);
        }
        wait_until(AGREED, "all nodes to know the new owner", || {
            self.living().all(|node| {
                let nodes = node.cli(&["CLUSTER", "NODES"]);
                let target = nodes.lines().find(|line| line.starts_with(&self.ids[to]));
                target.is_some_and(|line| holds(line, *slots.end()))
            })
        });
    }

    fn move_slot(&self, slot: &str, from: usize, to: usize) {
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        target.cli(&["CLUSTER", "SETSLOT", slot, "IMPORTING", &self.ids[from]]);
        source.cli(&["CLUSTER", "SETSLOT", slot, "MIGRATING", &self.ids[to]]);
        let port = target.port().to_string();
        loop {
            let keys = source.cli(&["CLUSTER", "GETKEYSINSLOT", slot, "100"]);
            if keys.is_empty() {
                break;
            }
            let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            migrate.extend(keys.lines());
            source.cli(&migrate);
        }
        for node in [target, source] {
            node.cli(&["CLUSTER", "SETSLOT", slot, "NODE", &self.ids[to]]);
        }
    }

    /// The replica of node `place` takes over in agreement with its master, losing nothing; returns when all know.
    pub fn failover(&self, place: usize) {
        let (replica, id) = (&self.nodes[place + MASTERS], &self.ids[place + MASTERS]);
        replica.cli(&["CLUSTER", "FAILOVER"]);
        self.wait_until_master(id);
    }

    /// Returns when the replica of node `place` has taken over by itself, after the node was killed.
    pub fn wait_for_failover(&self, place: usize) {
        self.wait_until_master(&self.ids[place + MASTERS]);
        self.wait_until_whole();
    }

    fn wait_until_master(&self, id: &str) {
        wait_until(AGREED, "all nodes to know the new master", || {
            self.living().all(|node| {
                let nodes = node.cli(&["CLUSTER", "NODES"]);
                nodes.lines().any(|line| line.starts_with(id) && line.contains("master"))
            })
        });
    }

    fn living(&self) -> impl Iterator<Item = &Server> {
        self.nodes.iter().filter(|node| node.pid().is_some())
    }
}

/// Does a line of `CLUSTER NODES` name a range that holds the slot?
fn holds(line: &str, slot: u16) -> bool {
    line.split(' ').skip(8).any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        matches!((first.parse::<u16>(), last.parse::<u16>()), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
    })
}
