//! `tidegate serve`: everything is bound, connected and checked before anything is served; then wait for a signal and drain.

use std::{future::Future, net::SocketAddr, time::Duration};

use anyhow::Context;
use dispatch::{Dispatch, EventLane, Parts};
use gate::{Backend, gate::Gate};
use limits::{CheckLane, Limits, gates::Gates};
use platform::{
    config::Span,
    db::Database,
    health::Health,
    http_client::{self, HttpClient, Reachable},
    http_server::{self, Lane, Plain, Reply},
    shutdown::Tasks,
    telemetry::{self, Telemetry},
};
use rustix::process::Resource;
use tenancy::{MasterKeyError, Tenancy, config::Doors, vault::Vault};
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
};

use crate::{
    api,
    command::{bring_up_to_date, connect, print},
    config::{Config, Role},
    health,
};

/// For questions about health and metrics that are under way when everything else has ended.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

pub(crate) async fn run(config: &Config) -> anyhow::Result<()> {
    let telemetry = telemetry::init(&config.telemetry)?;
    allow_many_files();
    let mut listeners = Listeners::bind(config)?;
    let places = listeners.places()?;
    let (database, vault) = open(config).await?;
    let (tasks, ops) = (Tasks::new(), Tasks::new());
    let signals = Signals::listen()?;
    let shared = shared_state(config)?;
    let dispatch = start_dispatch(config, listeners.addresses()?, &database, vault.clone(), &shared, &tasks).await?;
    let limits = start_limits(config, &database, &shared, &tasks).await?;
    let gates = start_gates(config, &database, vault, &shared, &tasks).await?;
    let health = health::of(config, &database, &shared, &dispatch, &tasks);
    let tenancy = Tenancy::new(&config.security.doors, database, api::ENDINGS, tasks.clone());
    tenancy.keep_up(config.security.audit_retention, &tasks);
    serve_resp(config, listeners.resp.take(), &tenancy, &shared, &tasks);
    let served = config.roles.contains(&Role::Api).then(|| dispatch.clone());
    let roles = api::Roles { dispatch: served, limits, gates };
    serve_grpc(config, listeners.grpc.take(), &tenancy, &roles, &tasks);
    serve_ops(config, listeners.ops, &health, &telemetry, &ops);
    serve(config, listeners.api, &tenancy, &roles, &health, &tasks);
    announce(config, places);
    drain(config, signals, &tasks, &ops, telemetry).await;
    shared.shutdown().await;
    Ok(())
}

/// Every connection is an open file, and the usual soft limit of 1,024 is soon reached.
pub(crate) fn allow_many_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = rustix::process::setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "The limit of open files could not be raised.");
    }
}

struct Listeners {
    api: TcpListener,
    ops: TcpListener,
    grpc: Option<TcpListener>,
    resp: Option<TcpListener>,
}

impl Listeners {
    fn bind(config: &Config) -> anyhow::Result<Self> {
        let is_limits = config.roles.contains(&Role::Limits);
        Ok(Listeners {
            api: bind("server.addr", "--addr or ADDR", config.addr)?,
            ops: bind("server.ops_addr", "--ops-addr or OPS_ADDR", config.ops_addr)?,
            grpc: is_limits
                .then(|| bind("server.grpc_addr", "--grpc-addr or GRPC_ADDR", config.grpc_addr))
                .transpose()?,
            resp: config
                .resp
                .filter(|_| is_limits)
                .map(|resp| bind("server.resp_addr", "--resp-addr or RESP_ADDR", resp.addr))
                .transpose()?,
        })
    }

    /// What a port of 0 has become.
    fn places(&self) -> anyhow::Result<Places> {
        Ok(Places { api: address(&self.api)?, ops: address(&self.ops)? })
    }

    /// Where no webhook may go, whatever is allowed.
    fn addresses(&self) -> anyhow::Result<Vec<SocketAddr>> {
        let all = [Some(&self.api), Some(&self.ops), self.grpc.as_ref(), self.resp.as_ref()].into_iter().flatten();
        all.map(address).collect()
    }
}

/// Where the API is, and what watches over it.
#[derive(Clone, Copy)]
struct Places {
    api: SocketAddr,
    ops: SocketAddr,
}

fn address(listener: &TcpListener) -> anyhow::Result<SocketAddr> {
    listener.local_addr().context("a listener has no address")
}

fn bind(key: &str, how: &str, addr: SocketAddr) -> anyhow::Result<TcpListener> {
    http_server::bind(addr).with_context(|| {
        format!("{key}: cannot listen on {addr}: stop what listens there, or choose another address with {how}")
    })
}

/// Connects, migrates, and makes sure that the master key is the one this database knows.
async fn open(config: &Config) -> anyhow::Result<(Database, Vault)> {
    let database = connect(&config.database).await?;
    let vault = config.security.vault()?;
    for migration in bring_up_to_date(&database).await? {
        tracing::info!(set = migration.set, migration = migration.migration, "Migrated the schema.");
    }
    tenancy::check_master_key(&tenancy::Store::new(database.clone()), &vault).await.map_err(|error| match error {
        MasterKeyError::Wrong(invalid) => anyhow::Error::from(invalid),
        MasterKeyError::Database(error) => error.into(),
    })?;
    Ok((database, vault))
}

/// Limits, circuits and permits: in Redis for the whole fleet, or in this process.
fn shared_state(config: &Config) -> anyhow::Result<Backend> {
    let Some(redis) = &config.redis else { return Ok(Backend::memory()) };
    Ok(Backend::redis_with(redis.server.clone(), redis.fallback.clone(), gate::Clock::System)?)
}

async fn start_dispatch(
    config: &Config,
    own_listeners: Vec<SocketAddr>,
    database: &Database,
    vault: Vault,
    shared: &Backend,
    tasks: &Tasks,
) -> anyhow::Result<Dispatch> {
    let is_dev = config.security.doors == Doors::Dev;
    let reachable = if is_dev { Reachable::loopback() } else { Reachable::default() };
    let reachable = reachable.and(&config.dispatch.allow_networks);
    let client = http_client::Config { reachable, own_listeners, ..http_client::Config::default() };
    let mut backend = shared.patient(dispatch::guard::PATIENCE);
    if config.redis.as_ref().is_some_and(|redis| !redis.shares_circuits) {
        backend = backend.with_own_circuits();
    }
    let parts = Parts {
        database: database.clone(),
        vault,
        gate: Gate::new(&backend),
        client: HttpClient::new(client),
        kafka: config.kafka.clone(),
        is_worker: config.roles.contains(&Role::Worker),
    };
    Dispatch::start(config.dispatch.clone(), parts, tasks).await.context("dispatch could not start")
}

/// `None` if this process does not have the role.
async fn start_limits(
    config: &Config,
    database: &Database,
    shared: &Backend,
    tasks: &Tasks,
) -> anyhow::Result<Option<Limits>> {
    if !config.roles.contains(&Role::Limits) {
        return Ok(None);
    }
    let parts = limits::Parts { database: database.clone(), shared: shared.clone() };
    Limits::start(&config.limits, parts, tasks).await.map(Some).context("limits could not start")
}

/// They belong to the limits role.
async fn start_gates(
    config: &Config,
    database: &Database,
    vault: Vault,
    shared: &Backend,
    tasks: &Tasks,
) -> anyhow::Result<Option<Gates>> {
    if !config.roles.contains(&Role::Limits) {
        return Ok(None);
    }
    Gates::start(database.clone(), vault, shared, tasks).await.map(Some).context("gates could not start")
}

/// Its tasks are its own: it is watched until everything else has ended.
fn serve_ops(config: &Config, listener: TcpListener, health: &Health, telemetry: &Telemetry, tasks: &Tasks) {
    let ops = http_server::with_limits(api::ops_routes(telemetry, health), &config.http);
    telemetry.upkeep(tasks);
    tasks.spawn("ops listener", http_server::serve("ops", listener, ops, config.http, tasks.clone()));
}

fn serve(
    config: &Config,
    listener: TcpListener,
    tenancy: &Tenancy,
    roles: &api::Roles,
    health: &Health,
    tasks: &Tasks,
) {
    let api = http_server::with_limits(api::routes(tenancy, roles, health), &config.http);
    let lane = ApiLane {
        events: roles.dispatch.as_ref().map(|dispatch| EventLane::new(tenancy.door(), dispatch)),
        checks: roles.limits.as_ref().map(|limits| CheckLane::new(tenancy.door(), limits.engine())),
    };
    let serving = http_server::serve_with_lane("api", listener, lane, api, config.http, tasks.clone());
    tasks.spawn("api listener", serving);
}

/// What is asked so often that the router is not worth its while.
struct ApiLane {
    events: Option<EventLane>,
    checks: Option<CheckLane>,
}

impl Lane for ApiLane {
    const ROUTES: &'static [&'static str] = &[EventLane::ROUTE, CheckLane::ROUTE];

    async fn answer(&self, request: &Plain<'_>, reply: &mut Reply) -> Option<usize> {
        if request.target().starts_with(CheckLane::ROUTE) {
            return self.checks.as_ref()?.answer(request, reply).await.map(|()| 1);
        }
        self.events.as_ref()?.answer(request, reply).await.map(|()| 0)
    }
}

fn serve_grpc(config: &Config, listener: Option<TcpListener>, tenancy: &Tenancy, roles: &api::Roles, tasks: &Tasks) {
    if let (Some(listener), Some(limits), Some(gates)) = (listener, &roles.limits, &roles.gates) {
        let (door, engine) = (tenancy.door().clone(), limits.engine().clone());
        let parts = limits::grpc::Parts { door, engine, gates: gates.clone() };
        tasks.spawn("grpc listener", limits::grpc::serve(listener, parts, config.http, tasks.clone()));
    }
}

fn serve_resp(config: &Config, listener: Option<TcpListener>, tenancy: &Tenancy, shared: &Backend, tasks: &Tasks) {
    if let (Some(listener), Some(resp)) = (listener, config.resp) {
        let (door, shared, of_listener) = (tenancy.door().clone(), shared.clone(), tasks.clone());
        tasks.spawn("resp listener", async move {
            limits::resp::serve(listener, door, &shared, resp.limits, of_listener).await;
        });
    }
}

fn announce(config: &Config, places: Places) {
    let Places { api: addr, ops: ops_addr } = places;
    let is_dev = config.security.doors == Doors::Dev;
    let absent: Vec<String> =
        config.roles.iter().filter(|role| !role.is_present()).map(|role| format!("{role:?}").to_lowercase()).collect();
    tracing::info!(%addr, %ops_addr, dev_mode = is_dev, database = database_kind(config), not_in_this_version = absent.join(","), "Tidegate is ready.");
    if is_dev {
        tracing::warn!(
            "Dev mode: no key is needed, because only this machine can connect. Set TIDEGATE_ADMIN_KEY to lock the door."
        );
        // A newcomer's first screen; nobody may be there to see it.
        if let Err(error) = print(&format!("{}\n", welcome(config, places))) {
            tracing::warn!(%error, "The welcome could not be shown.");
        }
    }
}

fn database_kind(config: &Config) -> &'static str {
    match config.database {
        platform::db::Config::Sqlite(_) => "sqlite",
        platform::db::Config::Postgres(_) => "postgres",
    }
}

/// Addresses, and something to try in lines to copy.
fn welcome(config: &Config, places: Places) -> String {
    let Places { api: addr, ops: ops_addr } = places;
    // `make run` starts it by a path: what is shown must work when it is pasted.
    let program = std::env::args().next().unwrap_or_else(|| "tidegate".to_owned());
    let first = if config.roles.contains(&Role::Api) {
        format!(
            "
  Your first delivery. In another terminal start a receiver, and leave it running:
    {program} sink

  In a third one say what it wants, send it an event, and look at what happened:
    curl http://{addr}/v1/subscriptions -d '{{\"url\": \"http://127.0.0.1:9999\", \"event_types\": [\"order.*\"]}}'
    curl http://{addr}/v1/events -d '{{\"type\": \"order.created\", \"data\": {{\"order\": 1}}}}'
    curl http://{addr}/v1/deliveries
"
        )
    } else if config.roles.contains(&Role::Limits) {
        format!(
            "
  Your first limit, and a question about it:
    curl -X PUT http://{addr}/v1/limits/rules/login -d '{{\"key\": \"login:*\", \"limit\": 5, \"window\": \"1m\"}}'
    curl http://{addr}/v1/limits/check -d '{{\"key\": \"login:203.0.113.7\"}}'
"
        )
    } else {
        String::new()
    };
    let serves = if first.is_empty() {
        format!("health   http://{addr}/health/ready        the API is served by the roles api and limits")
    } else {
        format!("API      http://{addr}        its documentation: http://{addr}/docs")
    };
    format!(
        "
  {serves}
  metrics  http://{ops_addr}/metrics
{first}
  Stop it with Ctrl-C.
"
    )
}

/// The signals that ask for the end. Listened for before anything is served: whoever sees it ready may stop it.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn listen() -> anyhow::Result<Self> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?,
        })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! { _ = self.terminate.recv() => (), _ = self.interrupt.recv() => () }
    }
}

/// SIGTERM: not ready, keep serving for the delay, stop accepting, finish what is in flight; health and metrics last of all.
/// A second signal ends it all.
async fn drain(config: &Config, mut signals: Signals, tasks: &Tasks, ops: &Tasks, telemetry: Telemetry) {
    signals.next().await;
    tracing::info!(delay = %Span(config.shutdown.delay), drain_timeout = %Span(config.shutdown.drain_timeout), "Shutting down.");
    tasks.leave();
    let finish = async {
        tokio::time::sleep(config.shutdown.delay).await;
        let is_clean = tasks.stop(config.shutdown.drain_timeout).await;
        // The last traces leave within the same deadline, however slow their collector is.
        let is_flushed = tokio::task::spawn_blocking(move || telemetry.flush()).await.is_ok();
        // Whoever has asked gets an answer; whoever is slow to ask holds nothing up.
        ops.stop(LAST_ANSWERS).await;
        is_clean && is_flushed
    };
    let is_clean = before(config.shutdown.timeout, finish, signals.next()).await;
    if is_clean {
        tracing::info!("Everything in flight has ended.");
    } else {
        tracing::warn!("Not everything ended in time; leaving all the same.");
    }
}

/// The outcome of `work`, or false once the deadline has passed or `interrupted` happened.
async fn before(deadline: Duration, work: impl Future<Output = bool>, interrupted: impl Future<Output = ()>) -> bool {
    tokio::select! {
        outcome = tokio::time::timeout(deadline, work) => outcome.unwrap_or(false),
        () = interrupted => false,
    }
}
