//! The only way out: calls to addresses that strangers chose.
//!
//! What always holds: the address checked is the address dialled, at every connect. One deadline spans name, connection,
//! TLS, request and answer. At most 128 KiB are read for an answer and 16 KiB of its body kept, as they came. Nothing
//! follows a redirect or asks a proxy. A dropped call closes its connection.
//!
//! # Sent twice
//! A call goes out a second time, once, over another connection, only if it went over one that others had used, and that ended
//! without one byte of an answer to it (the receiver had closed it meanwhile), or if the receiver said it did not take it.
//! The receiver may then see it twice, with the same `webhook-id`; `Answer::is_resent` tells.

pub mod address;
mod connect;
mod error;
mod exchange;
mod header;
mod http1;
pub mod metrics;
mod pool;
mod reachable;
mod refused;
mod resolve;
mod retry_after;
mod target;
mod tls;
mod turn;
mod wire;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use ::metrics::Counter;
use bytes::Bytes;
pub use error::{CallError, Phase};
pub use header::check_header;
use http::{
    HeaderMap, StatusCode,
    header::{HeaderName, HeaderValue},
};
pub use reachable::{Network, Reachable};
pub use refused::Refused;
pub use resolve::Dns;
pub use target::Target;
pub use tls::{TlsFiles, TlsIdentity};
use tokio::time::timeout;
pub use turn::Turn;

use self::{
    connect::{Connector, Progress},
    exchange::{Connection, Failure, Reply},
    pool::{Key, Pool},
    turn::Turns,
};

#[derive(Clone, Debug)]
pub struct Config {
    pub reachable: Reachable,
    /// Where this process listens; never dialled, whatever is reachable.
    pub own_listeners: Vec<SocketAddr>,
    pub dns: Dns,
    pub dns_timeout: Duration,
    /// For all addresses of a host together, and once more for TLS.
    pub connect_timeout: Duration,
    /// Shorter than receivers keep connections: Node closes after 5 s, balancers after 60 s.
    pub idle_timeout: Duration,
    pub max_idle_per_host: usize,
    /// Over all hosts.
    pub max_idle: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            reachable: Reachable::default(),
            own_listeners: Vec::new(),
            dns: Dns::System,
            dns_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(4),
            max_idle_per_host: 128,
            max_idle: 10_000,
        }
    }
}

/// One POST.
#[derive(Clone)]
pub struct Call<'a> {
    pub target: &'a Target,
    /// Checked with [`check_header`] when they were written, and the caller's own.
    pub headers: &'a [(HeaderName, HeaderValue)],
    pub body: Bytes,
    /// Over everything: name, connection, TLS, request, headers and body of the answer.
    pub deadline: Duration,
    pub tls: Option<&'a Arc<TlsIdentity>>,
}

/// What came back, whatever its status.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: StatusCode,
    /// At most 100 of them, and 32 KiB.
    pub headers: HeaderMap,
    /// At most 16 KiB, as it came over the wire: never decompressed.
    pub body: Bytes,
    pub is_truncated: bool,
    /// At most a day.
    pub retry_after: Option<Duration>,
    /// The call went out twice; see the module's first page.
    pub is_resent: bool,
}

/// Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct HttpClient(Arc<Inner>);

struct Inner {
    connector: Connector,
    pool: Arc<Pool>,
    turns: Arc<Turns>,
    /// Looked up once: nearly every call is one.
    reused: Counter,
}

impl HttpClient {
    pub fn new(config: Config) -> Self {
        let pool = Pool::new(config.idle_timeout, config.max_idle, config.max_idle_per_host);
        let turns = Turns::new(config.max_idle_per_host);
        let reused = ::metrics::counter!(metrics::REUSED);
        HttpClient(Arc::new(Inner { connector: Connector::new(&config), pool, turns, reused }))
    }

    /// Waits until a call to this host is worth making: at once, unless many are under way and it answers them.
    pub async fn turn(&self, target: &Target) -> Turn {
        self.0.turns.take(&target.origin).await
    }

    /// The same without anyone who waits: `begin` is called here and now, or when its turn comes.
    pub fn when_free(&self, target: &Target, begin: impl FnOnce(Turn) + Send + 'static) {
        self.0.turns.when_free(&target.origin, begin);
    }

    pub async fn post(&self, call: Call<'_>) -> Result<Answer, CallError> {
        let progress = Progress::new();
        let result = match timeout(call.deadline, Box::pin(self.0.send(&call, &progress))).await {
            Ok(result) => result,
            Err(_) => Err(CallError::Timeout { phase: progress.phase(), after: call.deadline }),
        };
        if let Err(CallError::Refused(refused)) = &result {
            ::metrics::counter!(metrics::REFUSED, "code" => refused.code).increment(1);
        }
        result
    }

    /// What it dials. A URL that is parsed for it is checked for the same.
    pub fn reachable(&self) -> &Reachable {
        &self.0.connector.reachable
    }

    /// Connections that wait for a next call.
    pub fn idle(&self) -> usize {
        self.0.pool.idle()
    }
}

/// Connections that a call is offered to that no receiver has taken yet, beside an idle one.
const TRIES: u32 = 3;

impl Inner {
    async fn send(&self, call: &Call<'_>, progress: &Progress) -> Result<Answer, CallError> {
        if let Some((name, _)) = call.headers.iter().find(|(name, _)| header::is_framing(name)) {
            return Err(Refused::new("header_forbidden", format!("{name} is set by the client itself")).into());
        }
        let identity = call.tls.map(|identity| identity.digest);
        let key = Key { origin: Arc::clone(&call.target.origin), identity };
        let mut is_resent = false;
        if let Some(connection) = self.idle_connection(&key) {
            self.reused.increment(1);
            match self.exchange(connection, &key, call, progress).await {
                Ok(reply) => return Ok(answer(reply, is_resent)),
                Err(failure) if failure.allows_another(&mut is_resent) => (),
                Err(failure) => return Err(failure.error),
            }
        }
        let mut tries = 0;
        loop {
            tries += 1;
            let (connection, is_used) = self.connection(&key, call, progress).await?;
            match self.exchange(connection, &key, call, progress).await {
                Ok(reply) => return Ok(answer(reply, is_resent)),
                // The receiver has just ended it, for all who share it.
                Err(failure)
                    if tries < TRIES && (failure.is_unsent || is_used && failure.allows_another(&mut is_resent)) => {}
                Err(failure) => return Err(failure.error),
            }
        }
    }

    /// A connection to share that others have used, or a new one.
    async fn connection(
        &self,
        key: &Key,
        call: &Call<'_>,
        progress: &Progress,
    ) -> Result<(Connection, bool), CallError> {
        let mut announcement = None;
        if call.target.is_https {
            progress.enter(Phase::Connect);
            match self.pool.shared(key).await {
                Ok(shared) => return Ok((Connection::Http2(shared), true)),
                Err(announced) => announcement = announced,
            }
        }
        let connection = self.open(call, progress).await?;
        if let Connection::Http2(connection) = &connection {
            self.pool.share(key.clone(), connection.clone());
        }
        drop(announcement);
        Ok((connection, false))
    }

    fn idle_connection(&self, key: &Key) -> Option<Connection> {
        while let Some(connection) = self.pool.take(key) {
            match connection {
                Connection::Http1(mut connection) => {
                    if connection.is_usable() {
                        return Some(Connection::Http1(connection));
                    }
                }
                shared @ Connection::Http2(_) => return Some(shared),
            }
        }
        None
    }

    async fn open(&self, call: &Call<'_>, progress: &Progress) -> Result<Connection, CallError> {
        let mut opened = self.connector.open(call.target, call.tls, progress).await;
        if let Err(CallError::Connect(error)) = &opened
            && is_out_of_descriptors(error)
        {
            self.pool.evict_half();
            opened = self.connector.open(call.target, call.tls, progress).await;
        }
        let connection = Connection::start(opened?).await?;
        let protocol = if matches!(connection, Connection::Http1(_)) { "http1" } else { "http2" };
        ::metrics::counter!(metrics::CONNECTIONS, "protocol" => protocol).increment(1);
        Ok(connection)
    }

    async fn exchange(
        &self,
        connection: Connection,
        key: &Key,
        call: &Call<'_>,
        progress: &Progress,
    ) -> Result<Reply, Failure> {
        progress.enter(Phase::Answer);
        match connection {
            Connection::Http1(mut connection) => {
                let reply = connection.exchange(call, progress).await?;
                if connection.is_usable() {
                    self.pool.park(key.clone(), connection);
                }
                Ok(reply)
            }
            Connection::Http2(connection) => connection.exchange(call, progress).await,
        }
    }
}

fn answer(reply: Reply, is_resent: bool) -> Answer {
    let Reply { status, headers, body, is_truncated, .. } = reply;
    let retry_after = retry_after::retry_after(&headers, time::OffsetDateTime::now_utc);
    Answer { status, headers, body, is_truncated, retry_after, is_resent }
}

/// Too many open files, in this process or in all.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(23 | 24))
}
