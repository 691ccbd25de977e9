//! A Sentinel set of one's own: a master, a replica and three sentinels, two of which must agree on a failover.

use std::time::Duration;

use super::{Server, server::reserve};
use crate::{Server as Kind, Unavailable, ledger, resp::Reply, wait::try_wait_until, wait_until};

const NAME: &str = "main";
const SENTINELS: usize = 3;
const AGREED: Duration = Duration::from_secs(90);

#[derive(Debug)]
pub struct Sentinel {
    sentinels: Vec<Server>,
    /// The first one starts as the master.
    servers: [Server; 2],
}

impl Sentinel {
    pub fn start() -> Result<Sentinel, Unavailable> {
        let fast = ["--repl-diskless-sync-delay", "0"];
        let master = Server::launch(&fast)?;
        let port = master.port().to_string();
        let replica = Server::launch(&[&fast[..], &["--replicaof", "127.0.0.1", &port]].concat())?;
        // Sentinels ask for replicas when they start, and then only every ten seconds.
        wait_until(AGREED, "the replica to be in step with its master", || {
            replica.cli(&["INFO", "replication"]).contains("master_link_status:up")
        });
        let sentinels = (0..SENTINELS).map(|_| watch(master.port())).collect::<Result<_, _>>()?;
        let set = Sentinel { sentinels, servers: [master, replica] };
        wait_until(AGREED, "the sentinels to know each other and the replica", || {
            set.sentinels.iter().all(|sentinel| {
                let known = sentinel.cli(&["SENTINEL", "MASTER", NAME]);
                let has = |field: &str, value: &str| known.contains(&format!("{field}\n{value}"));
                has("num-slaves", "1") && has("num-other-sentinels", "2") && has("flags", "master\n")
            })
        });
        ledger::used(Kind::Redis);
        Ok(set)
    }

    /// The sentinels' addresses.
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Server::url).collect()
    }

    /// What the sentinels call the set.
    pub fn master_name(&self) -> &'static str {
        NAME
    }

    /// The sentinel at this place, to be stopped or killed.
    pub fn sentinel(&self, place: usize) -> &Server {
        &self.sentinels[place]
    }

    /// Whom the sentinels call master. Right after a kill that is still the dead one.
    ///
    /// # Panics
    /// When the living sentinels do not come to agree.
    pub fn master(&self) -> &Server {
        let agreed = try_wait_until(AGREED, "the sentinels to agree on a master", || {
            let living = self.sentinels.iter().filter(|sentinel| sentinel.pid().is_some());
            let mut ports: Vec<u16> = living.map(master_port).collect::<Option<_>>()?;
            ports.dedup();
            let [port] = ports.as_slice() else { return None };
            self.servers.iter().find(|server| server.port() == *port)
        });
        agreed.unwrap_or_else(|timed_out| panic!("{timed_out}"))
    }

    /// `kill -9` of the current master. The replica takes over one to three seconds later: `wait_for_failover`.
    pub fn kill_master(&self) -> &Server {
        let master = self.master();
        master.kill();
        master
    }

    /// Returns the new master once the sentinels name it and it accepts writes.
    pub fn wait_for_failover(&self, old: &Server) -> &Server {
        wait_until(AGREED, "the sentinels to name a new master", || self.master().port() != old.port());
        let new = self.master();
        wait_until(AGREED, "the new master to accept writes", || new.cli(&["ROLE"]).starts_with("master"));
        new
    }
}

fn watch(master: u16) -> Result<Server, Unavailable> {
    let port = reserve()?;
    let config = format!(
        "port {}
bind 127.0.0.1
sentinel monitor {NAME} 127.0.0.1 {master} 2
sentinel down-after-milliseconds {NAME} 1000
sentinel failover-timeout {NAME} 5000
",
        port.number()
    );
    Server::launch_on(port, Some(&config), &["--sentinel"])
}

fn master_port(sentinel: &Server) -> Option<u16> {
    let Ok(Reply::List(address)) = sentinel.try_cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]) else {
        return None;
    };
    address.get(1)?.to_string().parse().ok()
}
