//! PostgreSQL: a pool of connections, TLS when the URL asks for it.

use std::{fs, io, sync::Arc, time::Duration};

use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolBuilder, QueueMode, RecyclingMethod,
    Runtime, Timeouts,
};
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use rustls::{
    CertificateError, ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::{
    AsyncMessage,
    config::{Host, SslMode},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{Error, File};
use crate::config::Invalid;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const WAIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Below server.request_timeout, so that the caller hears of the database and not of us.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Below the time of a health check, so that it is over before the check is, connection and all.
const PING_TIMEOUT: Duration = Duration::from_millis(1500);
const _: () = assert!(PING_TIMEOUT.as_millis() < crate::health::CHECK_TIMEOUT.as_millis());

/// What the driver does unless it is told otherwise.
const KERNELS_OWN_IDLE: Duration = Duration::from_secs(2 * 60 * 60);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);

/// How long work waited for a connection; where it grows, `database.pool_size` is too small or the database too slow.
const POOL_WAIT_SECONDS: &str = "tidegate_database_pool_wait_seconds";

/// Every statement of ours finds its rows by an index. A new table, and every midnight a day's partition, is unknown to
/// PostgreSQL until it is analysed: it would rather read it from end to end, again and again while it fills. And none runs
/// long enough to be worth compiling: over many partitions PostgreSQL thought so, and a claim of a millisecond took three
/// seconds. What it only wants to mention (a table that is there already) is not for the log.
const BY_INDEX: &str =
    "SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off; SET client_min_messages = warning";
/// For batches, besides: one plan serves them all.
const IN_BATCHES: &str =
    "SET plan_cache_mode = force_generic_plan; SET enable_hashjoin = off; SET enable_mergejoin = off";

#[derive(Clone)]
pub struct Config {
    driver: tokio_postgres::Config,
    tls: Arc<ClientConfig>,
    pool_size: usize,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The driver's own output leaves the password out.
        f.debug_struct("Config").field("driver", &self.driver).field("pool_size", &self.pool_size).finish()
    }
}

impl Config {
    pub fn new(file: &File) -> Result<Self, Invalid> {
        let mut driver: tokio_postgres::Config = in_our_modes(file.url.expose()).parse().map_err(|error| {
            Invalid::new(
                "database.url",
                format!("not a PostgreSQL URL ({error}): write \"postgres://user:password@host:5432/name\""),
            )
        })?;
        if driver.get_hosts().is_empty() || driver.get_hosts().contains(&Host::Tcp(String::new())) {
            return Err(Invalid::new(
                "database.url",
                "the URL names no host: write \"postgres://user:password@host:5432/name\"",
            ));
        }
        if driver.get_connect_timeout().is_none() {
            driver.connect_timeout(CONNECT_TIMEOUT);
        }
        // A server that is gone without a word is noticed within half a minute, not after two hours.
        if driver.get_keepalives_idle() == KERNELS_OWN_IDLE {
            driver.keepalives_idle(KEEPALIVE_IDLE).keepalives_interval(KEEPALIVE_INTERVAL).keepalives_retries(3);
        }
        if driver.get_tcp_user_timeout().is_none() {
            driver.tcp_user_timeout(UNACKNOWLEDGED);
        }
        if driver.get_application_name().is_none() {
            driver.application_name("tidegate");
        }
        // One for batches and one for the rest.
        if !(2..=1000).contains(&file.pool_size) {
            return Err(Invalid::new(
                "database.pool_size",
                format!("{} is out of range: use 2 to 1000", file.pool_size),
            ));
        }
        Ok(Config { driver, tls: Arc::new(tls(&file.ca_file)?), pool_size: file.pool_size })
    }

    /// Where it is, without who we are: for messages.
    pub fn place(&self) -> String {
        let hosts: Vec<String> = self
            .driver
            .get_hosts()
            .iter()
            .map(|host| match host {
                Host::Tcp(name) => name.clone(),
                Host::Unix(path) => path.display().to_string(),
            })
            .collect();
        let port = self.driver.get_ports().first().copied().unwrap_or(5432);
        format!("{}:{port}", hosts.join(","))
    }
}

/// Other clients have stricter modes than `require`. Here TLS always means what those say: the certificate is checked,
/// and its name.
fn in_our_modes(url: &str) -> String {
    let Some((place, parameters)) = url.rsplit_once('?') else { return url.to_owned() };
    let parameters = parameters.replace("sslmode=verify-full", "sslmode=require");
    format!("{place}?{}", parameters.replace("sslmode=verify-ca", "sslmode=require"))
}

/// What is wrong with a certificate, and how it becomes right.
pub(super) fn advice(error: &CertificateError) -> &'static str {
    use CertificateError::{Expired, ExpiredContext, NotValidForName, NotValidForNameContext, Other};
    match error {
        Expired | ExpiredContext { .. } => "its certificate has expired: renew it",
        NotValidForName | NotValidForNameContext { .. } => {
            "its certificate is for another name: write the name that it is for into the URL"
        }
        Other(error) if error.to_string().contains("CaUsedAsEndEntity") => {
            "its certificate is an authority's own, as a plain `openssl req -x509` makes it, and no server's: give it one with CA:FALSE and the host's name"
        }
        _ => "nobody known signed its certificate: name the PEM file of the authority that did in database.ca_file",
    }
}

/// Mozilla's roots, or the operator's own authority alone.
fn tls(ca_file: &str) -> Result<ClientConfig, Invalid> {
    let mut roots = RootCertStore::empty();
    if ca_file.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    } else {
        let added = fs::read(ca_file).and_then(|pem| add_roots(&mut roots, &pem));
        added.map_err(|error| {
            Invalid::new("database.ca_file", format!("{ca_file:?} could not be read as PEM certificates: {error}"))
        })?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider supports TLS 1.2 and 1.3");
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn add_roots(roots: &mut RootCertStore, pem: &[u8]) -> io::Result<()> {
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    if roots.is_empty() {
        return Err(io::Error::other("it holds no certificate"));
    }
    Ok(())
}

/// A pool. Connections are opened when needed and replaced when they broke.
#[derive(Clone)]
pub struct Postgres {
    config: Arc<Config>,
    pool: Pool,
    /// Half of the connections, for batches.
    batches: Pool,
}

/// A connection of its own that hears what others announce with `NOTIFY`.
pub struct Listener {
    messages: BoxStream<'static, Result<AsyncMessage, tokio_postgres::Error>>,
    /// The connection ends with it.
    _client: tokio_postgres::Client,
}

impl Listener {
    /// Waits for the next announcement.
    pub async fn next(&mut self) -> Result<(), Error> {
        loop {
            match self.messages.next().await {
                Some(Ok(AsyncMessage::Notification(_))) => return Ok(()),
                Some(Ok(_)) => (),
                Some(Err(error)) => return Err(error.into()),
                None => return Err(Error::Closed),
            }
        }
    }
}

impl Postgres {
    pub async fn connect(config: &Config) -> Result<Self, Error> {
        let batches = config.pool_size.div_ceil(2);
        let postgres = Postgres {
            config: Arc::new(config.clone()),
            pool: pool(config).max_size(config.pool_size - batches).build()?,
            batches: pool(config).max_size(batches).post_create(set(IN_BATCHES)).build()?,
        };
        drop(postgres.client().await?);
        Ok(postgres)
    }

    /// Runs `work` with a connection. After the deadline both are given up: a connection that stalls in the middle of a
    /// query would hold up whoever gets it next.
    pub(super) async fn within<T>(&self, work: impl AsyncFnOnce(&mut Object) -> Result<T, Error>) -> Result<T, Error> {
        let client = self.client().await?;
        in_time(client, Instant::now() + QUERY_TIMEOUT, work).await.ok_or(Error::Deadline(QUERY_TIMEOUT))?
    }

    pub(super) async fn ping(&self) -> Result<(), Error> {
        let (late, end) = (|| Error::Deadline(PING_TIMEOUT), Instant::now() + PING_TIMEOUT);
        let client = timeout_at(end, self.client()).await.map_err(|_| late())??;
        let ask = async |client: &mut Object| Ok(client.batch_execute("SELECT 1").await?);
        in_time(client, end, ask).await.ok_or_else(late)?
    }

    /// Gives `work` so much time and no more. After that, connections that are back in the pool are closed: one of them is
    /// stuck in the middle of a query, and would hold up whoever gets it next.
    pub async fn in_time<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let outcome = tokio::time::timeout(QUERY_TIMEOUT, work).await;
        outcome.unwrap_or_else(|_| {
            self.pool.retain(|_, _| false);
            self.batches.retain(|_, _| false);
            Err(Error::Deadline(QUERY_TIMEOUT))
        })
    }

    /// Hears what is announced on this channel from now on. Behind a pooler that shares connections it hears nothing.
    pub async fn listen(&self, channel: &'static str) -> Result<Listener, Error> {
        let Config { driver, tls, .. } = &*self.config;
        let (client, mut messages) = if driver.get_ssl_mode() == SslMode::Disable {
            let (client, mut connection) = driver.connect(tokio_postgres::NoTls).await?;
            (client, stream::poll_fn(move |context| connection.poll_message(context)).boxed())
        } else {
            let tls = MakeRustlsConnect::new(ClientConfig::clone(tls));
            let (client, mut connection) = driver.connect(tls).await?;
            (client, stream::poll_fn(move |context| connection.poll_message(context)).boxed())
        };
        let listening = async { client.batch_execute(&format!("LISTEN {channel}")).await };
        {
            tokio::pin!(listening);
            loop {
                tokio::select! {
                    listens = &mut listening => break listens?,
                    message = messages.next() => drop(message.ok_or(Error::Closed)??),
                }
            }
        }
        Ok(Listener { messages, _client: client })
    }

    /// A connection for statements that take whole batches to their rows, planned for that; see [`Postgres::client`].
    pub async fn batch_client(&self) -> Result<Object, Error> {
        out_of(&self.batches).await
    }

    /// A connection out of the pool; it goes back when dropped.
    pub async fn client(&self) -> Result<Object, Error> {
        out_of(&self.pool).await
    }
}

/// `None` if it was not over by then; the connection is closed.
async fn in_time<T>(
    mut client: Object,
    end: Instant,
    work: impl AsyncFnOnce(&mut Object) -> Result<T, Error>,
) -> Option<Result<T, Error>> {
    let outcome = timeout_at(end, work(&mut client)).await;
    if outcome.is_err() {
        drop(Object::take(client));
    }
    outcome.ok()
}

async fn out_of(pool: &Pool) -> Result<Object, Error> {
    let asked = Instant::now();
    let client = pool.get().await;
    metrics::histogram!(POOL_WAIT_SECONDS).record(asked.elapsed());
    Ok(client?)
}

/// Every new connection begins with these settings.
fn set(settings: &'static str) -> Hook {
    Hook::async_fn(move |client: &mut ClientWrapper, _| {
        Box::pin(async move { client.batch_execute(settings).await.map_err(HookError::Backend) })
    })
}

fn pool(config: &Config) -> PoolBuilder {
    let manager_config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = if config.driver.get_ssl_mode() == SslMode::Disable {
        Manager::from_config(config.driver.clone(), tokio_postgres::NoTls, manager_config)
    } else {
        let tls = MakeRustlsConnect::new(ClientConfig::clone(&config.tls));
        Manager::from_config(config.driver.clone(), tls, manager_config)
    };
    let timeouts = Timeouts { wait: Some(WAIT_TIMEOUT), create: Some(CONNECT_TIMEOUT), recycle: Some(CONNECT_TIMEOUT) };
    Pool::builder(manager)
        .timeouts(timeouts)
        .runtime(Runtime::Tokio1)
        // Each server process of PostgreSQL's has plans, caches and a view of the shared memory of its own: few that are warm.
        .queue_mode(QueueMode::Lifo)
        .post_create(set(BY_INDEX))
}
