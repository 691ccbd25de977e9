//! The command line. Help texts teach with examples; every flag is also a key of the configuration.

mod live;
mod parse;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

pub(crate) use self::live::{MOST_LINES, Produce, Replay, Server, Sink, Tail, wants_no_colour};
use crate::config::{Error, Layers, Role};

/// Holds the limits of everything your services call: rate, concurrency, circuit, budget, once for the whole fleet.
#[derive(Parser)]
#[command(
    name = "tidegate",
    version,
    propagate_version = true,
    after_help = "\
Try it:
  tidegate serve                    everything in one process, data in ./data, no other server needed
  tidegate sink                     in another terminal: a receiver that shows what is delivered
  tidegate produce --events 10000   in a third: load, and a summary of what became of it
  tidegate serve --help             addresses, roles, files"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run Tidegate
    #[command(after_help = SERVE_HELP)]
    Serve(Serve),
    /// Bring the database's schema up to date, then exit
    ///
    /// `serve` does this by itself. Any number of processes may do it at once. Where the replicas' role of PostgreSQL
    /// may only read and write rows, run it beforehand as the role that owns the tables, and once a day: it also makes
    /// the tables of the next four days.
    #[command(after_help = "\
Examples:
  tidegate migrate
  DATABASE_URL=postgres://owner:secret@db:5432/tidegate tidegate migrate

What a role of PostgreSQL needs that only serves, given once by the owner:
  GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO replica;
  GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO replica;
  ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO replica;
  ALTER DEFAULT PRIVILEGES GRANT USAGE ON SEQUENCES TO replica;

Days older than dispatch.retention are dropped by any process whose role owns the tables:
let one serve, or drop events_, deliveries_ and attempts_YYYYMMDD yourself.")]
    Migrate(Source),
    /// Create, list, rotate and revoke API keys
    ///
    /// Works on the database directly, also while `serve` runs, which notices within a second. A new database is made
    /// ready; the schema of one that is there is left to `serve` and `migrate`.
    #[command(subcommand)]
    Keys(Keys),
    /// Receive webhooks, to try things out: show, verify, count, delay or fail them
    ///
    /// Answers every POST on any path. An id that comes again after a failure is a retry, after a success a duplicate.
    /// With --secret it answers 401 to what is not signed with it. `curl` the address to see the counts so far, with gaps
    /// and latencies; `/counts` has the counts alone, for whoever asks often.
    #[command(after_help = live::SINK_HELP)]
    Sink(Sink),
    /// Send events at a rate or as fast as possible, and wait until they are delivered
    ///
    /// Makes subscriptions to a sink, spreads its events evenly over them, one delivery each, and takes the
    /// subscriptions away again. Exits with 1 unless every event was accepted and delivered. Ctrl-C ends it with a summary
    /// of what was sent until then.
    #[command(after_help = live::PRODUCE_HELP)]
    Produce(Produce),
    /// Show deliveries as they happen
    ///
    /// One line whenever a delivery is made or its status changes, until Ctrl-C. Times are UTC. Asks the API twice a
    /// second, so it also works from another machine.
    ///
    /// Of what came before it, 200 unfinished deliveries of each status are followed. Unfinished ones that are no
    /// longer among the newest are asked for by themselves, 100 a second: where thousands wait, a change shows so much
    /// later. With --status the newest 1000 in that status are followed. One that had ended and is sent again by hand
    /// shows while it is among the newest 200.
    #[command(after_help = live::TAIL_HELP)]
    Tail(Tail),
    /// Send deliveries again: by their ids, or by what they have in common
    ///
    /// Without a filter: all that have failed. A job in the background does it, at no more than half of each
    /// subscription's rate; this command shows its progress. Ctrl-C leaves the job running, and says how to follow it.
    #[command(after_help = live::REPLAY_HELP)]
    Replay(Replay),
    /// Check the configuration, or print it as it will be used
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Measure, and print the tables of docs/performance.md
    #[cfg(feature = "bench")]
    #[command(subcommand)]
    Bench(Bench),
    /// Print the OpenAPI document of the HTTP API
    Openapi,
    /// Print completions for a shell
    #[command(after_help = "\
Examples:
  tidegate completions bash > /etc/bash_completion.d/tidegate
  tidegate completions zsh > ~/.zfunc/_tidegate")]
    Completions { shell: Shell },
}

const SERVE_HELP: &str = "\
Examples:
  tidegate serve
      One process, no servers: SQLite and a generated master key in ./data, open to this machine only.
  DATABASE_URL=postgres://… REDIS_URL=redis://… tidegate serve --addr 0.0.0.0:8080
      One of several replicas. Other machines can reach it, so TIDEGATE_ADMIN_KEY and TIDEGATE_MASTER_KEY must be set:
      make each with `openssl rand -hex 32`.
  tidegate serve --roles api --config /etc/tidegate.toml
      Only some roles and their routes (a worker alone has /health), settings from a file. `tidegate config print` shows
      every setting and its default.

Signals: SIGTERM or SIGINT drains and exits with 0; a second one exits at once.
Exit codes: 0 done, 1 could not start or failed, 2 wrong arguments or configuration.";

/// Where settings come from.
#[derive(Args, Clone, Default)]
pub(crate) struct Source {
    /// A TOML file with the settings that differ from the defaults
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The folder of SQLite's file [default: data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub source: Source,
    /// Address of the API [default: 127.0.0.1:8080]
    #[arg(long, value_name = "IP:PORT")]
    pub addr: Option<String>,
    /// Address of /metrics and /health, for monitoring [default: 127.0.0.1:9090]
    #[arg(long, value_name = "IP:PORT")]
    pub ops_addr: Option<String>,
    /// Address of the gRPC services of the limits role [default: 127.0.0.1:8081]
    #[arg(long, value_name = "IP:PORT")]
    pub grpc_addr: Option<String>,
    /// Address of THROTTLE and CL.THROTTLE for Redis clients, in the limits role [default: off]
    #[arg(long, value_name = "IP:PORT")]
    pub resp_addr: Option<String>,
    /// What this process does, separated by commas [default: all]
    #[arg(long, value_name = "ROLES", value_delimiter = ',')]
    pub roles: Vec<Role>,
}

#[cfg(feature = "bench")]
#[derive(Subcommand)]
pub(crate) enum Bench {
    /// The gate: memory against governor, Redis against its own bare speed, and what was admitted too much or too little
    ///
    /// Measures memory alone where no Redis is configured. Use a release build, and a Redis that serves nothing else. Keys
    /// are made under a prefix of their own and removed.
    #[command(after_help = "\
Examples:
  make bench                                                   starts a Redis of its own
  REDIS_URL=redis://127.0.0.1:6390/15 tidegate bench gate      yours")]
    Gate(Source),
    /// Limits over HTTP, gRPC and RESP: memory against bare handlers and throttlecrab-server, Redis against its bare script,
    /// and what was admitted too much or too little
    ///
    /// Client and server share this machine. Starts throttlecrab-server where it is installed (cargo install
    /// throttlecrab-server; THROTTLECRAB says where it lies). Use a release build, and a Redis that serves nothing else.
    #[command(after_help = "\
Examples:
  make bench                                                   starts a Redis of its own
  REDIS_URL=redis://127.0.0.1:6390/15 tidegate bench limits    yours
  tidegate bench limits --only http                            a part of the table")]
    Limits {
        #[command(flatten)]
        source: Source,
        /// One section: http, grpc and resp in memory, or redis for all three of them on Redis
        #[arg(long, value_name = "SECTION")]
        only: Option<limits::bench::Section>,
    },
    /// Dispatch: from intake to receiver, each part beside its bare limit
    ///
    /// Starts processes of its own, and a sink. Without a database it measures one process on SQLite; with DATABASE_URL
    /// (and REDIS_URL, and KAFKA_BROKERS) one process that takes in and 1, 2 and 3 that deliver, in a database of its own
    /// beside the one that is named. Use a release build, and servers that serve nothing else.
    #[command(after_help = "\
Examples:
  tidegate bench dispatch
  DATABASE_URL=postgres://… REDIS_URL=redis://… tidegate bench dispatch --subscriptions 10000")]
    Dispatch(BenchDispatch),
    /// The handler that `bench dispatch` compares intake to: reads an event and keeps none
    #[command(hide = true)]
    BareIntake { addr: std::net::SocketAddr },
    /// The handlers that `bench limits` compares itself to: same bytes, no decision
    #[command(hide = true)]
    Bare { http: std::net::SocketAddr, grpc: std::net::SocketAddr },
}

/// throttlecrab-server, where `THROTTLECRAB` or the path says it is.
#[cfg(feature = "bench")]
pub(crate) fn throttlecrab() -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "this is where the environment enters the command line")]
    let named = std::env::var_os("THROTTLECRAB");
    named.filter(|path| !path.is_empty()).map_or_else(|| PathBuf::from("throttlecrab-server"), PathBuf::from)
}

#[cfg(feature = "bench")]
#[derive(Args)]
pub(crate) struct BenchDispatch {
    #[command(flatten)]
    pub source: Source,
    /// How many events in each run
    #[arg(long, default_value_t = 50_000)]
    pub events: u64,
    /// Over how many subscriptions
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub subscriptions: u64,
    /// Bytes of an event's data
    #[arg(long, value_parser = parse::size, default_value = "1KiB")]
    pub size: usize,
    /// Deliveries that are in the database before the first measurement; on SQLite only
    #[arg(long, default_value_t = 0)]
    pub stored: u64,
    /// How many workers each fleet has; the smallest is what the others are compared to
    #[arg(long, value_delimiter = ',', default_value = "1,2,3", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub workers: Vec<u32>,
    /// No fleet, as small as the smallest, one in a hundred of whose receivers never answers
    #[arg(long)]
    pub without_hanging: bool,
    /// How often each fleet runs, or on SQLite the process and the bare client, in turns. The middle run of each is shown,
    /// and how many times the other's run of the same round it is, in the middle
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Another build of tidegate, such as the one before a change: its servers and workers have their rounds between this one's
    #[arg(long, value_name = "BINARY")]
    pub beside: Option<PathBuf>,
}

#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check every setting; exit with 2 and the mistake if one is wrong
    Check(Source),
    /// Print every setting as it will be used, and where it was set; secrets are hidden
    Print(Source),
}

#[derive(Subcommand)]
pub(crate) enum Keys {
    /// Make a key and print it, once
    #[command(after_help = "\
Examples:
  tidegate keys create --name 'billing service'
  tidegate keys create --tenant acme --name reports --role viewer --expires-in 90d")]
    Create {
        #[command(flatten)]
        tenant: Tenant,
        /// What or who the key is for
        #[arg(long)]
        name: String,
        /// admin: everything in its tenant; editor: everything but keys; viewer: looks only
        #[arg(long, value_enum, default_value = "editor")]
        role: KeyRole,
        /// The key ends after this time, such as 90d [default: never]
        #[arg(long, value_name = "DURATION")]
        expires_in: Option<String>,
    },
    /// List keys: what they may do, when they were used
    List {
        #[command(flatten)]
        tenant: Tenant,
    },
    /// Replace a key; the old one stays valid for the grace time
    Rotate {
        #[command(flatten)]
        tenant: Tenant,
        /// The key's id, such as key_01k9…
        id: String,
        /// How long both keys are valid
        #[arg(long, value_name = "DURATION", default_value = "24h")]
        grace: String,
    },
    /// End a key at once
    Revoke {
        #[command(flatten)]
        tenant: Tenant,
        /// The key's id, such as key_01k9…
        id: String,
    },
}

#[derive(Args)]
pub(crate) struct Tenant {
    #[command(flatten)]
    pub source: Source,
    /// The tenant that the keys belong to
    #[arg(long, default_value = tenancy::door::DEFAULT_TENANT)]
    pub tenant: String,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum KeyRole {
    Admin,
    Editor,
    Viewer,
}

impl From<KeyRole> for tenancy::scope::Role {
    fn from(role: KeyRole) -> Self {
        match role {
            KeyRole::Admin => Self::Admin,
            KeyRole::Editor => Self::Editor,
            KeyRole::Viewer => Self::Viewer,
        }
    }
}

impl Source {
    /// Defaults, then the file, then the environment, then these flags.
    pub(crate) fn layers(&self) -> Result<Layers, Error> {
        let mut layers = Layers::defaults();
        if let Some(path) = &self.config {
            layers = layers.with_file(path)?;
        }
        #[expect(clippy::disallowed_methods, reason = "this is where the environment enters the configuration")]
        let variables = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        let data_dir = self.data_dir.as_ref().map(|path| path.to_string_lossy());
        layers.with_environment(variables)?.with_flag("--data-dir", "server.data_dir", data_dir.as_deref())
    }
}

impl Serve {
    pub(crate) fn layers(&self) -> Result<Layers, Error> {
        let roles: Vec<String> = self
            .roles
            .iter()
            .filter_map(|role| role.to_possible_value())
            .map(|role| role.get_name().to_owned())
            .collect();
        let roles = (!roles.is_empty()).then(|| roles.join(","));
        self.source
            .layers()?
            .with_flag("--addr", "server.addr", self.addr.as_deref())?
            .with_flag("--ops-addr", "server.ops_addr", self.ops_addr.as_deref())?
            .with_flag("--grpc-addr", "server.grpc_addr", self.grpc_addr.as_deref())?
            .with_flag("--resp-addr", "server.resp_addr", self.resp_addr.as_deref())?
            .with_flag("--roles", "server.roles", roles.as_deref())
    }
}
