//! Idle connections, by origin and TLS identity.
//!
//! Bounded per host and in all: when the pool is full the older half goes. A connection is kept for a shorter time than
//! receivers keep theirs, the newest is used first, and a sweeper closes what is left; it ends when nothing is left.
//! Calls that come while a host's first connection is being opened wait a moment for it: it may be one to share.

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
    /// Hosts to which a first connection is being opened; dropping the sender tells those who wait.
    dials: HashMap<Key, watch::Sender<()>>,
    idle: usize,
    has_sweeper: bool,
}

#[derive(Default)]
struct Host {
    /// The newest is last.
    http1: Vec<Parked<Box<Http1>>>,
    http2: Option<Parked<Http2>>,
}

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

    /// The connection that calls to this host share.
    pub(super) fn shared(&self, key: &Key) -> Option<Http2> {
        self.state.lock().shared(key)
    }

    /// Announces that a connection will be opened to a host of which nothing is known; the announcement ends when it is
    /// dropped. Where another has announced the same, waits for its end and announces nothing.
    pub(super) async fn announce<'a>(&'a self, key: &'a Key) -> Option<Announcement<'a>> {
        let mut end = {
            let mut state = self.state.lock();
            if state.hosts.contains_key(key) {
                return None;
            }
            let Some(dial) = state.dials.get(key) else {
                state.dials.insert(key.clone(), watch::Sender::new(()));
                return Some(Announcement { pool: self, key });
            };
            dial.subscribe()
        };
        drop(timeout(PATIENCE, end.changed()).await);
        None
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

    /// From now on calls to this host go over this connection, unless another is there already.
    pub(super) fn share(self: &Arc<Self>, key: Key, connection: Http2) {
        let since = Instant::now();
        self.make_room();
        let mut state = self.state.lock();
        let host = state.hosts.entry(key).or_default();
        let is_there = host.http2.as_ref().is_some_and(|there| there.connection.is_usable());
        if !is_there {
            let replaced = host.http2.replace(Parked { connection, since });
            state.idle += usize::from(replaced.is_none());
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
    fn shared(&mut self, key: &Key) -> Option<Http2> {
        let host = self.hosts.get_mut(key)?;
        let shared = host.http2.as_mut()?;
        if shared.connection.is_usable() {
            shared.since = Instant::now();
            return Some(shared.connection.clone());
        }
        host.http2 = None;
        self.idle -= 1;
        None
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
            gone.extend(host.http2.take_if(is_over).map(|shared| Connection::Http2(shared.connection)));
            !host.http1.is_empty() || host.http2.is_some()
        });
        self.idle -= gone.len();
        gone
    }
}

impl Host {
    fn ages(&self) -> impl Iterator<Item = Instant> {
        self.http1.iter().map(|parked| parked.since).chain(self.http2.iter().map(|shared| shared.since))
    }
}
