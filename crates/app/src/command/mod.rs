//! One file per command; this one picks, and turns errors into a sentence and an exit code.

#[cfg(feature = "bench")]
mod bench;
mod client;
mod keys;
mod produce;
mod replay;
mod runtime;
mod samples;
mod sink;
mod tail;
mod terminal;

use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;
use platform::{
    config::Invalid,
    db::{self, Applied, Database},
};
use tokio::runtime::Builder;

use crate::{
    api,
    cli::{Cli, Command, ConfigCommand, Source},
    config::{self, Config},
    serve,
};

const NOT_ALLOWED: &str = "the schema is not up to date, and this role of PostgreSQL may not change it: \
    run `tidegate migrate` as the role that owns the tables";

pub(crate) fn run(cli: Cli) -> anyhow::Result<()> {
    let on_all_cores = Builder::new_multi_thread();
    match cli.command {
        Command::Serve(arguments) => {
            let config = Config::load(&arguments.layers()?)?;
            runtime::run(runtime::serving(&config), serve::run(&config))
        }
        Command::Migrate(source) => runtime::run(on_all_cores, migrate(&source)),
        Command::Keys(command) => runtime::run(on_all_cores, keys::run(command)),
        // It takes calls beside whoever makes them, often on the same few cores: threads of its own would cost both.
        Command::Sink(arguments) => runtime::run(Builder::new_current_thread(), sink::run(&arguments)),
        Command::Produce(arguments) => runtime::run(on_all_cores, produce::run(&arguments)),
        Command::Tail(arguments) => runtime::run(on_all_cores, tail::run(&arguments)),
        Command::Replay(arguments) => runtime::run(on_all_cores, replay::run(&arguments)),
        Command::Config(ConfigCommand::Check(source)) => {
            Config::load(&source.layers()?)?;
            print("The configuration is good.\n")
        }
        Command::Config(ConfigCommand::Print(source)) => print(&source.layers()?.print()),
        #[cfg(feature = "bench")]
        Command::Bench(bench) => runtime::run(on_all_cores, bench::run(&bench)),
        Command::Openapi => print(&api::document(api::Served::ALL).to_pretty_json().context("the document is JSON")?),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "tidegate", &mut script);
            print(&String::from_utf8_lossy(&script))
        }
    }
}

/// Says what went wrong on one line. Mistakes of the operator's exit with 2, everything else with 1.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    let is_mistake = error.is::<config::Error>() || error.is::<Invalid>();
    #[expect(clippy::print_stderr, reason = "the last word of a command goes to the terminal, not to the log")]
    {
        eprintln!("tidegate: {error:#}");
    }
    ExitCode::from(if is_mistake { 2 } else { 1 })
}

/// Writes to standard output; a closed pipe (`| head`) is not an error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    terminal::show(text).map(drop).context("could not write to standard output")
}

async fn migrate(source: &Source) -> anyhow::Result<()> {
    let config = config::database_only(&source.layers()?)?;
    let database = connect(&config).await?;
    let applied = bring_up_to_date(&database).await?;
    dispatch::store::Store::new(database).prepare_days().await?;
    let mut text = String::new();
    for migration in &applied {
        text.push_str(&format!("applied {} {}\n", migration.set, migration.migration));
    }
    if applied.is_empty() {
        text.push_str("The schema is up to date.\n");
    }
    print(&text)
}

/// Migrates, or says who can.
pub(crate) async fn bring_up_to_date(database: &Database) -> anyhow::Result<Vec<Applied>> {
    database.migrate(api::MIGRATIONS).await.map_err(|error| {
        let is_forbidden = error.is_forbidden();
        let error = anyhow::Error::from(error);
        if is_forbidden { error.context(NOT_ALLOWED) } else { error }
    })
}

/// Connects to the database, or says where it was looked for and which key says so.
pub(crate) async fn connect(config: &db::Config) -> anyhow::Result<Database> {
    Database::connect(config).await.map_err(|error| {
        let what = match (config, error.distrust()) {
            (db::Config::Sqlite(path), _) => {
                format!("database.url: SQLite's file {} does not open: check server.data_dir (--data-dir) and its permissions", path.display())
            }
            (db::Config::Postgres(config), Some(advice)) => {
                format!("database.url (DATABASE_URL): PostgreSQL at {} is not trusted: {advice}; or go without TLS: add ?sslmode=disable to the URL", config.place())
            }
            (db::Config::Postgres(config), None) => {
                format!("database.url (DATABASE_URL): PostgreSQL at {} does not answer: check that it runs and that the URL is right", config.place())
            }
        };
        anyhow::Error::from(error).context(what)
    })
}
