//! Configuration: as written ([`File`]), then as used ([`Config`]). The rest of the program never sees the file.
//!
//! `config/default.toml` holds every key, so it is also the list of keys that exist: anything else is a mistake, and the
//! nearest key is offered.

mod layers;
#[cfg(test)]
mod tests;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use platform::{
    config::{Invalid, Size, Span, address},
    db, http_server,
    secret::Secret,
    telemetry,
};
use serde::Deserialize;

pub(crate) use self::layers::{Error, Layers};

/// `config/default.toml`, as it was when this binary was built.
pub(crate) const DEFAULT: &str = include_str!("../../../../config/default.toml");

/// The configuration as written: every section, every key.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    server: ServerFile,
    security: tenancy::config::File,
    database: db::File,
    redis: RedisFile,
    kafka: dispatch::kafka::config::File,
    dispatch: dispatch::config::File,
    limits: limits::config::File,
    shutdown: ShutdownFile,
    telemetry: telemetry::File,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerFile {
    addr: String,
    ops_addr: String,
    grpc_addr: String,
    resp_addr: String,
    resp_idle_timeout: Span,
    roles: Vec<Role>,
    data_dir: PathBuf,
    max_connections: usize,
    header_timeout: Span,
    request_timeout: Span,
    idle_timeout: Span,
    max_body: Size,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RedisFile {
    url: Secret,
    prefix: String,
    ca_file: String,
    deadline: Span,
    fewest_replicas: u32,
    share_circuits: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShutdownFile {
    delay: Span,
    drain_timeout: Span,
    timeout: Span,
}

/// What a process does. Each scales alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Takes events in, answers queries
    Api,
    /// Delivers events
    Worker,
    /// Answers "may this go ahead?"
    Limits,
    /// Stands in front of LLM providers; not in this version
    Gateway,
    /// Serves the web pages; not in this version
    Dashboard,
}

impl Role {
    /// Is it in this version? The others are accepted beside one that is, so that a deployment can name them already.
    pub(crate) fn is_present(self) -> bool {
        matches!(self, Role::Api | Role::Worker | Role::Limits)
    }
}

/// The configuration as used: checked, ready.
#[derive(Clone)]
pub(crate) struct Config {
    pub addr: SocketAddr,
    pub ops_addr: SocketAddr,
    pub grpc_addr: SocketAddr,
    pub resp: Option<Resp>,
    pub roles: Vec<Role>,
    pub http: http_server::Limits,
    pub security: tenancy::config::Config,
    pub database: db::Config,
    pub redis: Option<Redis>,
    pub kafka: Option<dispatch::kafka::Config>,
    pub dispatch: dispatch::Config,
    pub limits: limits::Config,
    pub shutdown: Shutdown,
    pub telemetry: telemetry::Config,
}

/// Where shared state lives, and how long to wait for it.
#[derive(Clone, Debug)]
pub(crate) struct Redis {
    pub server: gate::redis::Config,
    pub fallback: gate::fallback::Config,
    /// The circuits of subscriptions are the fleet's, not each process's own.
    pub shares_circuits: bool,
}

/// Where `THROTTLE` is answered, and what its clients may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resp {
    pub addr: SocketAddr,
    pub limits: limits::resp::Limits,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Shutdown {
    pub delay: Duration,
    pub drain_timeout: Duration,
    pub timeout: Duration,
}

impl Config {
    /// Reads all layers and checks them; the error names the key, where it was set, and the fix.
    pub(crate) fn load(layers: &Layers) -> Result<Self, Error> {
        let file: File = layers.read()?;
        Config::try_from(file).map_err(|invalid| layers.blame(invalid))
    }
}

impl TryFrom<File> for Config {
    type Error = Invalid;

    fn try_from(file: File) -> Result<Self, Invalid> {
        let File { server, security, database, redis, kafka, dispatch, limits, shutdown, telemetry } = file;
        let addr = address("server.addr", &server.addr)?;
        let ops_addr = address("server.ops_addr", &server.ops_addr)?;
        let grpc_addr = address("server.grpc_addr", &server.grpc_addr)?;
        let shutdown = Shutdown::try_from(&shutdown)?;
        let http = http_limits(&server, shutdown)?;
        let resp = checked_resp(&server, &http)?;
        let mut listeners = vec![("server.addr", addr), ("server.ops_addr", ops_addr), ("server.grpc_addr", grpc_addr)];
        listeners.extend(resp.map(|resp| ("server.resp_addr", resp.addr)));
        if server.roles.is_empty() {
            return Err(Invalid::new(
                "server.roles",
                "a process needs at least one role: api, worker, limits, gateway, dashboard",
            ));
        }
        if !server.roles.iter().any(|role| role.is_present()) {
            return Err(Invalid::new(
                "server.roles",
                "gateway and dashboard are not in this version, so this process would do nothing: name api, worker or limits",
            ));
        }
        if server.data_dir.as_os_str().is_empty() {
            return Err(Invalid::new(
                "server.data_dir",
                "name the folder that SQLite's file goes into, such as \"data\"",
            ));
        }
        let database = db::Config::new(&database, &server.data_dir)?;
        let machine = rustix::system::uname();
        let around = dispatch::kafka::config::Surroundings {
            is_postgres: matches!(database, db::Config::Postgres(_)),
            host: &machine.nodename().to_string_lossy(),
            port: addr.port(),
        };
        Ok(Config {
            addr,
            ops_addr,
            grpc_addr,
            http,
            resp,
            security: tenancy::config::Config::new(&security, &listeners, &server.data_dir)?,
            database,
            redis: checked_redis(&redis)?,
            kafka: dispatch::kafka::Config::new(kafka, &around)?,
            dispatch: dispatch.try_into()?,
            limits: limits.try_into()?,
            roles: server.roles,
            shutdown,
            telemetry: telemetry.try_into()?,
        })
    }
}

fn http_limits(server: &ServerFile, shutdown: Shutdown) -> Result<http_server::Limits, Invalid> {
    let short = Duration::from_millis(100);
    let (second, day) = (Duration::from_secs(1), Duration::from_secs(86_400));
    if !(1..=1_000_000).contains(&server.max_connections) {
        return Err(Invalid::new(
            "server.max_connections",
            format!("{} is out of range: use 1 to 1000000", server.max_connections),
        ));
    }
    let Size(max_body) = server.max_body;
    if !(1 << 10..=64 << 20).contains(&max_body) {
        return Err(Invalid::new("server.max_body", format!("{max_body} bytes is out of range: use 1KiB to 64MiB")));
    }
    Ok(http_server::Limits {
        max_connections: server.max_connections,
        header_timeout: server.header_timeout.within("server.header_timeout", short, Duration::from_secs(300))?,
        request_timeout: server.request_timeout.within("server.request_timeout", short, Duration::from_secs(3600))?,
        idle_timeout: server.idle_timeout.within("server.idle_timeout", second, day)?,
        max_body,
        drain_timeout: shutdown.drain_timeout,
    })
}

fn checked_resp(server: &ServerFile, http: &http_server::Limits) -> Result<Option<Resp>, Invalid> {
    let idle_timeout = server.resp_idle_timeout.within(
        "server.resp_idle_timeout",
        Duration::from_secs(1),
        Duration::from_secs(86_400),
    )?;
    if server.resp_addr.is_empty() {
        return Ok(None);
    }
    let limits = limits::resp::Limits {
        max_connections: http.max_connections,
        command_timeout: http.header_timeout,
        idle_timeout,
    };
    Ok(Some(Resp { addr: address("server.resp_addr", &server.resp_addr)?, limits }))
}

impl TryFrom<&ShutdownFile> for Shutdown {
    type Error = Invalid;

    fn try_from(file: &ShutdownFile) -> Result<Self, Invalid> {
        let shutdown = Shutdown {
            delay: file.delay.within("shutdown.delay", Duration::ZERO, Duration::from_secs(300))?,
            drain_timeout: file.drain_timeout.within(
                "shutdown.drain_timeout",
                Duration::ZERO,
                Duration::from_secs(3600),
            )?,
            timeout: file.timeout.0,
        };
        if shutdown.timeout <= shutdown.delay + shutdown.drain_timeout {
            return Err(Invalid::new(
                "shutdown.timeout",
                format!(
                    "{} must be longer than shutdown.delay ({}) and shutdown.drain_timeout ({}) together",
                    file.timeout, file.delay, file.drain_timeout
                ),
            ));
        }
        Ok(shutdown)
    }
}

fn checked_redis(file: &RedisFile) -> Result<Option<Redis>, Invalid> {
    if file.url.is_empty() {
        return Ok(None);
    }
    let mut server = gate::redis::Config::new(file.url.expose());
    server.check().map_err(|error| {
        let forms = "redis://host:6379, rediss://user:password@host:6379 (TLS), redis+sentinel://host,host/master or redis+cluster://host,host";
        Invalid::new("redis.url", format!("{error}: write {forms}"))
    })?;
    server.prefix.clone_from(&file.prefix);
    if !file.ca_file.is_empty() {
        let pem = std::fs::read(&file.ca_file);
        let problem = |error| Invalid::new("redis.ca_file", format!("{:?} could not be read: {error}", file.ca_file));
        server.root_certificate = Some(pem.map_err(problem)?);
    }
    let deadline = file.deadline.within("redis.deadline", Duration::from_millis(1), Duration::from_secs(10))?;
    let fewest_replicas = file.fewest_replicas;
    let fallback = gate::fallback::Config { deadline, fewest_replicas, ..gate::fallback::Config::default() };
    if !(1..=fallback.most_replicas).contains(&fewest_replicas) {
        let problem = format!("{fewest_replicas} is out of range: use 1 to {}", fallback.most_replicas);
        return Err(Invalid::new("redis.fewest_replicas", problem));
    }
    Ok(Some(Redis { server, fallback, shares_circuits: file.share_circuits }))
}

/// The database alone, for commands that never listen.
pub(crate) fn database_only(layers: &Layers) -> Result<db::Config, Error> {
    let file: File = layers.read()?;
    db::Config::new(&file.database, &file.server.data_dir).map_err(|invalid| layers.blame(invalid))
}

/// Kafka alone, for a command that writes to the topic and knows no database.
#[cfg(feature = "kafka")]
pub(crate) fn kafka_only(layers: &Layers) -> Result<dispatch::kafka::Config, Error> {
    let file: File = layers.read()?;
    let around = dispatch::kafka::config::Surroundings { is_postgres: true, host: "produce", port: 0 };
    let config = dispatch::kafka::Config::new(file.kafka, &around).map_err(|invalid| layers.blame(invalid))?;
    config.ok_or_else(|| layers.blame(Invalid::new("kafka.brokers", "name at least one broker, such as host:9092")))
}
