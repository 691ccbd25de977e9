//! Redis: a corner of the run's shared server, and servers of one's own to break.
//!
//! A server of one's own forgets everything on `restart` unless it was started `persistent`, in which case what it
//! acknowledged is on disk. Everything here panics when a server that did start no longer obeys: that is a broken test.

mod cluster;
mod sentinel;
mod server;

use std::sync::OnceLock;

pub use cluster::Cluster;
pub use sentinel::Sentinel;
pub use server::Server;

use crate::{Server as Kind, Unavailable, find, fresh, ledger};

/// A corner of the shared server: keys that start with `prefix` belong to one test.
#[derive(Clone, Debug)]
pub struct Shared {
    port: u16,
    prefix: String,
}

/// The shared server of this run: the one `servers run` started, else one started once for this process.
pub fn shared() -> Result<Shared, Unavailable> {
    static PORT: OnceLock<Result<u16, Unavailable>> = OnceLock::new();
    let port = PORT.get_or_init(shared_port).clone()?;
    ledger::used(Kind::Redis);
    Ok(Shared { port, prefix: fresh::word() + ":" })
}

fn shared_port() -> Result<u16, Unavailable> {
    static OWN: OnceLock<Server> = OnceLock::new();
    if let Some(port) = find::port_of_the_run(Kind::Redis)? {
        return Ok(port);
    }
    let server = Server::launch(&[])?;
    Ok(OWN.get_or_init(|| server).port())
}

impl Shared {
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// New for every call of `testkit::redis()`, ends in a colon.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}
