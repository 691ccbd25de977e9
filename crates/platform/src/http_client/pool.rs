//! Idle connections, by origin and TLS identity.
//!
//! Bounded per host and in all: when the pool is full the older half goes. A connection is kept for a shorter time than
//! receivers keep theirs, the newest is used first, and a sweeper closes what is left; it ends when nothing is left.
//! Calls that come while a host's first connection is being opened wait a moment for it: it may be one to share. Calls to
//! a host that has its share of connections in use wait a moment for one of these: a fast receiver is served over few.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, timeout},
};

use super::{
    exchange::{Connection, Http1, Http2},
    metrics::{EVICTED, IDLE},
};

/// A call waits this long for another's connection before it opens one of its own.
const PATIENCE: Duration = Duration::from_millis(250);
/// The same where there are many already: a receiver that has answered none of them for this long is slow, and needs more.
const HANDOVER: Duration = Duration::from_millis(50);
/// However fast it answers others, a call waits no longer than this.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

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
    /// HTTP/1.1 connections with a call on them, and calls that open one.
    busy: usize,
    /// Calls that wait for one of these.
    waiting: VecDeque<oneshot::Sender<Box<Http1>>>,
    /// When a call over one of these last ended.
    last_end: Option<Instant>,
}

/// A call and its HTTP/1.1 connection, once it has one. When it is dropped the connection goes to the next call or back into
/// the pool if [`Busy::is_reusable`], and is closed otherwise.
pub(super) struct Busy<'a> {
    pool: &'a Arc<Pool>,
    key: &'a Key,
    connection: Option<Box<Http1>>,
    pub(super) is_reusable: bool,
}

/// What a call that found no idle connection does.
pub(super) enum Turn<'a> {
    /// Another call is done with this one.
    Take(Connection),
    Open(Busy<'a>),
}

impl Busy<'_> {
    pub(super) fn with(&mut self, connection: Box<Http1>) -> &mut Http1 {
        self.connection.insert(connection)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let connection = self.connection.take();
        self.pool.settle(self.key, connection.filter(|_| self.is_reusable));
    }
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
            if state.hosts.get(key).is_some_and(Host::is_known) {
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

    /// Where the host has its share of connections already, waits for one that another call is done with.
    pub(super) async fn turn<'a>(self: &'a Arc<Self>, key: &'a Key) -> Turn<'a> {
        let (sender, mut turn) = oneshot::channel();
        {
            let mut state = self.state.lock();
            let host = state.hosts.entry(key.clone()).or_default();
            if host.busy < self.max_idle_per_host {
                host.busy += 1;
                return Turn::Open(Busy { pool: self, key, connection: None, is_reusable: false });
            }
            host.waiting.push_back(sender);
        }
        let begun = Instant::now();
        loop {
            match timeout(HANDOVER, &mut turn).await {
                Ok(Ok(handed)) => return Turn::Take(Connection::Http1(handed)),
                Err(_) if begun.elapsed() < LONGEST_WAIT && self.is_answering(key) => (),
                Ok(Err(_)) | Err(_) => return Turn::Open(self.busy(key)),
            }
        }
    }

    fn is_answering(&self, key: &Key) -> bool {
        let last_end = self.state.lock().hosts.get(key).and_then(|host| host.last_end);
        last_end.is_some_and(|end| end.elapsed() < HANDOVER)
    }

    /// Counts a call until what is returned is dropped.
    pub(super) fn busy<'a>(self: &'a Arc<Self>, key: &'a Key) -> Busy<'a> {
        self.state.lock().hosts.entry(key.clone()).or_default().busy += 1;
        Busy { pool: self, key, connection: None, is_reusable: false }
    }

    /// A call is over: its connection goes on to the next, or is parked; without one the next opens its own.
    fn settle(self: &Arc<Self>, key: &Key, mut connection: Option<Box<Http1>>) {
        let mut state = self.state.lock();
        let Some(host) = state.hosts.get_mut(key) else { return };
        host.busy -= 1;
        host.last_end = Some(Instant::now());
        while let Some(waiter) = host.waiting.pop_front() {
            let Some(offered) = connection.take() else { return };
            match waiter.send(offered) {
                Ok(()) => return,
                Err(refused) => connection = Some(refused),
            }
        }
        if let Some(connection) = connection
            && host.http1.len() < self.max_idle_per_host
        {
            host.http1.push(Parked { connection, since: Instant::now() });
            state.idle += 1;
        } else if host.busy == 0 && host.http1.is_empty() && host.http2.is_none() {
            state.hosts.remove(key);
        }
        let is_full = state.idle >= self.max_idle;
        self.ensure_sweeper(state);
        if is_full {
            self.evict_half();
        }
    }

    /// From now on calls to this host go over this connection, unless another is there already.
    pub(super) fn share(self: &Arc<Self>, key: Key, connection: Http2) {
        let since = Instant::now();
        self.make_room();
        let mut state = self.state.lock();
        let host = state.hosts.entry(key).or_default();
        let is_there = host.http2.as_ref().is_some_and(|there| there.connection.is_usable());
        // Whoever waits for a connection may share this one.
        host.waiting.clear();
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
            !host.http1.is_empty() || host.http2.is_some() || host.busy > 0
        });
        self.idle -= gone.len();
        gone
    }
}

impl Host {
    /// It has been spoken to.
    fn is_known(&self) -> bool {
        self.last_end.is_some() || self.http2.is_some()
    }

    fn ages(&self) -> impl Iterator<Item = Instant> {
        self.http1.iter().map(|parked| parked.since).chain(self.http2.iter().map(|shared| shared.since))
    }
}
