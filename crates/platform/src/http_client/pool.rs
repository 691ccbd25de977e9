//! Idle connections, by origin and TLS identity.
//!
//! Bounded per host and in all: when the pool is full the older half goes. A connection is kept for a shorter time than
//! receivers keep theirs, the newest is used first, and a sweeper closes what is left; it ends when nothing is left.
//! Calls that come while a host's first connection is being opened wait a moment for it: it may be one to share. Calls share a
//! connection only up to what receivers commonly allow: whoever came after that would wait in a line that nobody sees.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use super::{
    exchange::{Connection, Http2},
    http1::Http1,
    metrics::{EVICTED, IDLE},
};

/// A call waits this long for another's connection before it opens one of its own.
const PATIENCE: Duration = Duration::from_millis(250);
/// .. and so often where those that are there are full.
const WAITS: u32 = 8;
/// Calls that share a connection: the fewest that HTTP/2 recommends receivers to allow.
const MOST_SHARING: usize = 100;

/// Connections are shared between calls for which all of this is the same.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) origin: Arc<str>,
    pub(super) identity: Option<[u8; 32]>,
}

pub(super) struct Pool {
    state: Mutex<State>,
    idle_timeout: Duration,
    max_idle: usize,
    max_idle_per_host: usize,
}

#[derive(Default)]
struct State {
    hosts: HashMap<Key, Host>,
    /// Hosts to which a connection that others wait for is being opened; dropping the sender tells those who wait.
    dials: HashMap<Key, watch::Sender<()>>,
    idle: usize,
    has_sweeper: bool,
}

#[derive(Default)]
struct Host {
    /// The newest is last.
    http1: Vec<Parked<Box<Http1>>>,
    http2: Vec<Parked<Http2>>,
}

/// Others wait for a connection to this host, until it is dropped.
pub(super) struct Announcement<'a> {
    pool: &'a Pool,
    key: &'a Key,
}

impl Drop for Announcement<'_> {
    fn drop(&mut self) {
        drop(self.pool.state.lock().dials.remove(self.key));
    }
}

struct Parked<T> {
    connection: T,
    since: Instant,
}

impl Pool {
    pub(super) fn new(idle_timeout: Duration, max_idle: usize, max_idle_per_host: usize) -> Arc<Self> {
        Arc::new(Pool { state: Mutex::default(), idle_timeout, max_idle, max_idle_per_host })
    }

    /// The newest connection to this host; it may have died since it was parked.
    pub(super) fn take(&self, key: &Key) -> Option<Connection> {
        let mut state = self.state.lock();
        if let Some(shared) = state.shared(key) {
            return Some(Connection::Http2(shared));
        }
        let parked = state.hosts.get_mut(key)?.http1.pop()?;
        state.idle -= 1;
        drop(state);
        // What is older lies below it, and is the sweeper's.
        (parked.since.elapsed() < self.idle_timeout).then_some(Connection::Http1(parked.connection))
    }

    /// A connection to share, or leave to open one: for all who come meanwhile, where the host speaks HTTP/2 or nothing is known
    /// of it.
    pub(super) async fn shared<'a>(&'a self, key: &'a Key) -> Result<Http2, Option<Announcement<'a>>> {
        for waits in 0..WAITS {
            let mut end = {
                let mut state = self.state.lock();
                if let Some(shared) = state.shared(key) {
                    return Ok(shared);
                }
                let host = state.hosts.get(key);
                if (waits > 0 || host.is_some()) && host.is_none_or(|host| host.http2.is_empty()) {
                    return Err(None);
                }
                let Some(dial) = state.dials.get(key) else {
                    state.dials.insert(key.clone(), watch::Sender::new(()));
                    return Err(Some(Announcement { pool: self, key }));
                };
                dial.subscribe()
            };
            drop(timeout(PATIENCE, end.changed()).await);
        }
        Err(None)
    }

    pub(super) fn park(self: &Arc<Self>, key: Key, connection: Box<Http1>) {
        let since = Instant::now();
        self.make_room();
        let mut state = self.state.lock();
        let host = state.hosts.entry(key).or_default();
        if host.http1.len() < self.max_idle_per_host {
            host.http1.push(Parked { connection, since });
            state.idle += 1;
        }
        self.ensure_sweeper(state);
    }

    /// From now on calls to this host go over this connection, too, unless another has room for them.
    pub(super) fn share(self: &Arc<Self>, key: Key, connection: Http2) {
        let since = Instant::now();
        self.make_room();
        let mut state = self.state.lock();
        if state.shared(&key).is_none() {
            state.hosts.entry(key).or_default().http2.push(Parked { connection, since });
            state.idle += 1;
        }
        self.ensure_sweeper(state);
    }

    pub(super) fn idle(&self) -> usize {
        self.state.lock().idle
    }

    /// Closes the older half of what is idle; the process is out of descriptors, or the pool is full.
    pub(super) fn evict_half(&self) {
        let mut state = self.state.lock();
        let mut ages: Vec<Instant> = state.hosts.values().flat_map(Host::ages).collect();
        if ages.is_empty() {
            return;
        }
        let middle = ages.len() / 2;
        let cutoff = *ages.select_nth_unstable(middle).1;
        let gone = state.remove_until(cutoff);
        drop(state);
        metrics::counter!(EVICTED).increment(gone.len() as u64);
    }

    fn make_room(&self) {
        if self.idle() >= self.max_idle {
            self.evict_half();
        }
    }

    fn ensure_sweeper(self: &Arc<Self>, mut state: parking_lot::MutexGuard<'_, State>) {
        if state.has_sweeper || state.idle == 0 {
            return;
        }
        state.has_sweeper = true;
        drop(state);
        #[expect(clippy::disallowed_methods, reason = "holds no work that shutdown should wait for; ends by itself")]
        drop(tokio::spawn(sweep(Arc::downgrade(self), self.idle_timeout / 2)));
    }

    /// False when nothing is left to sweep.
    fn sweep(&self) -> bool {
        let mut state = self.state.lock();
        let now = Instant::now();
        let gone = now.checked_sub(self.idle_timeout).map(|cutoff| state.remove_until(cutoff));
        state.has_sweeper = state.idle > 0;
        let (idle, has_more) = (state.idle, state.has_sweeper);
        drop(state);
        drop(gone);
        #[expect(clippy::cast_precision_loss, reason = "a count of sockets")]
        metrics::gauge!(IDLE).set(idle as f64);
        has_more
    }
}

async fn sweep(pool: Weak<Pool>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        match pool.upgrade() {
            Some(pool) if pool.sweep() => (),
            _ => return,
        }
    }
}

impl State {
    /// The oldest that has room, so that the others fall idle. Those that have ended go, and a host that is left with none is not
    /// known any more: one opens a connection for all.
    fn shared(&mut self, key: &Key) -> Option<Http2> {
        let host = self.hosts.get_mut(key)?;
        let before = host.http2.len();
        host.http2.retain(|shared| shared.connection.is_usable());
        self.idle -= before - host.http2.len();
        if before > 0 && host.is_empty() {
            self.hosts.remove(key);
            return None;
        }
        let shared = host.http2.iter_mut().find(|shared| shared.connection.holders() < MOST_SHARING)?;
        shared.since = Instant::now();
        Some(shared.connection.clone())
    }

    /// Takes out what was parked up to then, for the caller to drop outside the lock.
    fn remove_until(&mut self, cutoff: Instant) -> Vec<Connection> {
        let mut gone = Vec::new();
        self.hosts.retain(|_, host| {
            let old = host.http1.partition_point(|parked| parked.since <= cutoff);
            gone.extend(host.http1.drain(..old).map(|parked| Connection::Http1(parked.connection)));
            let is_over = |shared: &mut Parked<Http2>| {
                !shared.connection.is_usable() || shared.since <= cutoff && shared.connection.holders() == 0
            };
            gone.extend(host.http2.extract_if(.., is_over).map(|shared| Connection::Http2(shared.connection)));
            !host.is_empty()
        });
        self.idle -= gone.len();
        gone
    }
}

impl Host {
    fn is_empty(&self) -> bool {
        self.http1.is_empty() && self.http2.is_empty()
    }

    fn ages(&self) -> impl Iterator<Item = Instant> {
        self.http1.iter().map(|parked| parked.since).chain(self.http2.iter().map(|shared| shared.since))
    }
}
