//! A receiver for webhooks on loopback: records and verifies what arrives, and answers each path as it is told.
//!
//! A request is on record before its answer begins, whatever the answer is. Behaviours can be changed at any time and
//! hold for the requests that arrive afterwards. It runs on a thread of its own and ends when dropped.

mod behaviour;
mod record;
mod script;
mod server;
pub mod signature;

use std::{
    collections::{BTreeMap, HashMap},
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

pub use behaviour::{Answer, Behaviour};
use record::Record;
pub use record::Request;
pub use signature::{Secret, Verdict};
use tokio::sync::oneshot;

use crate::wait::{TimedOut, try_wait_until};

#[derive(Debug)]
pub struct Receiver {
    address: SocketAddr,
    state: Arc<State>,
    /// Dropped to end the thread.
    alive: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What connections and the test share.
#[derive(Debug)]
struct State {
    record: Record,
    rules: Mutex<Rules>,
    connections: AtomicU64,
    /// Requests that are here and not yet answered, and the most there ever were.
    here: AtomicUsize,
    most: AtomicUsize,
}

/// A request while it is here: until its answer is ready, or its sender is gone.
struct Here(Arc<State>);

#[derive(Default)]
struct Rules {
    usual: Behaviour,
    paths: HashMap<String, Behaviour>,
    secrets: Vec<Secret>,
    /// A connection that is idle for so long after an answer is closed.
    idle: Option<Duration>,
    is_silent: bool,
    /// Requests so far, by path, and by path and id.
    seen: HashMap<(String, Option<String>), u32>,
}

impl Receiver {
    /// Listens on a free port and answers 200 to everything.
    ///
    /// # Panics
    /// When it cannot listen on 127.0.0.1.
    pub fn start() -> Receiver {
        Receiver::start_at(Ipv4Addr::LOCALHOST)
    }

    /// The same at every address, so that each of 127.0.0.0/8 is a host of its own.
    ///
    /// # Panics
    /// When it cannot listen.
    pub fn start_everywhere() -> Receiver {
        Receiver::start_at(Ipv4Addr::UNSPECIFIED)
    }

    fn start_at(address: Ipv4Addr) -> Receiver {
        let listener = std::net::TcpListener::bind((address, 0)).expect("there is a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let (record, rules, connections) = (Record::new(), Mutex::default(), AtomicU64::new(0));
        let (here, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let state = Arc::new(State { record, rules, connections, here, most });
        let (alive, ended) = oneshot::channel();
        let shared = Arc::clone(&state);
        let thread = thread::Builder::new().name("receiver".into()).spawn(|| server::run(listener, shared, ended));
        Receiver { address, state, alive: Some(alive), thread: Some(thread.expect("a thread can start")) }
    }

    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// The address of a path, which starts with a slash.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// How paths without a behaviour of their own are answered.
    pub fn set(&self, behaviour: impl Into<Behaviour>) {
        self.rules().usual = behaviour.into();
    }

    /// How one path is answered.
    pub fn set_path(&self, path: &str, behaviour: impl Into<Behaviour>) {
        self.rules().paths.insert(path.to_owned(), behaviour.into());
    }

    /// From now on every request must be signed with one of these; what is not gets 401.
    pub fn verify_with(&self, secrets: impl IntoIterator<Item = Secret>) {
        self.rules().secrets = secrets.into_iter().collect();
    }

    /// New connections are closed when they have been idle for this long after an answer.
    pub fn close_idle_after(&self, idle: Duration) {
        self.rules().idle = Some(idle);
    }

    /// New connections are accepted and then ignored, as when a TLS handshake gets no answer.
    pub fn set_silent(&self, is_silent: bool) {
        self.rules().is_silent = is_silent;
    }

    /// Everything that arrived so far, in the order of arrival.
    pub fn requests(&self) -> Vec<Request> {
        self.state.record.all()
    }

    pub fn count(&self) -> usize {
        self.state.record.count()
    }

    /// How many connections were accepted so far.
    pub fn connections(&self) -> u64 {
        self.state.connections.load(Ordering::Acquire)
    }

    /// The most requests that were here at the same time: arrived, not yet answered, and their sender not gone.
    pub fn most_at_a_time(&self) -> usize {
        self.state.most.load(Ordering::Acquire)
    }

    /// The `webhook-id`s that arrived more than once, and how often.
    pub fn duplicates(&self) -> BTreeMap<String, usize> {
        self.state.record.ids().into_iter().filter(|(_, count)| *count > 1).collect()
    }

    /// How many different `webhook-id`s arrived.
    pub fn distinct(&self) -> usize {
        self.state.record.ids().len()
    }

    /// Everything that arrived since it was last taken, in the order of arrival. It is forgotten.
    pub fn take(&self) -> Vec<Request> {
        self.state.record.take()
    }

    /// Forgets what arrived; behaviours and their counts stay.
    pub fn clear(&self) {
        self.state.record.clear();
    }

    /// Waits for the `count`th request and gives all there are.
    ///
    /// # Panics
    /// When fewer have arrived within `limit`.
    pub async fn received(&self, count: usize, limit: Duration) -> Vec<Request> {
        let mut arrived = self.state.record.watch();
        let enough = arrived.wait_for(|now| *now >= count);
        if tokio::time::timeout(limit, enough).await.is_err() {
            self.too_few(count, limit);
        }
        self.requests()
    }

    /// `received` for tests without a runtime.
    pub fn received_blocking(&self, count: usize, limit: Duration) -> Vec<Request> {
        let enough = || (self.count() >= count).then_some(());
        if try_wait_until(limit, "requests", enough).is_err() {
            self.too_few(count, limit);
        }
        self.requests()
    }

    fn too_few(&self, count: usize, limit: Duration) -> ! {
        panic!("{}", TimedOut { limit, what: format!("request {count}; {} arrived", self.count()) })
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.state.rules()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Here {
    fn new(state: &Arc<State>) -> Here {
        let here = state.here.fetch_add(1, Ordering::AcqRel) + 1;
        state.most.fetch_max(here, Ordering::AcqRel);
        Here(Arc::clone(state))
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        self.0.here.fetch_sub(1, Ordering::AcqRel);
    }
}

impl State {
    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Rules").field("usual", &self.usual).field("paths", &self.paths).finish_non_exhaustive()
    }
}

impl Rules {
    /// Counts the request and decides how it is answered, and after which delay.
    fn decide(&mut self, path: &str, id: Option<&str>) -> (Duration, Answer) {
        let behaviour = self.paths.get(path).unwrap_or(&self.usual);
        let mut nth = |id: Option<&str>| {
            let seen = self.seen.entry((path.to_owned(), id.map(str::to_owned))).or_default();
            *seen += 1;
            *seen
        };
        // Both are counted, whichever decides.
        let is_early = nth(None) <= behaviour.fail_first;
        let is_early_of_its_id = id.is_some_and(|id| nth(Some(id)) <= behaviour.fail_first_of_each);
        let is_failure = is_early || is_early_of_its_id;
        let answer = if is_failure { &behaviour.failure } else { &behaviour.answer };
        (behaviour.delay, answer.clone())
    }
}
