//! The binary `tidegate`: arguments -> configuration -> roles -> drain.

mod api;
mod cli;
mod command;
mod config;
mod health;
mod serve;

use std::{env, process::ExitCode, thread};

use clap::Parser;
use tokio::runtime::Builder;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let mut runtime = match cli.command {
        // It takes calls beside whoever makes them, often on the same few cores: threads of its own would cost both.
        cli::Command::Sink(_) => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    if let Some(threads) = threads(&cli.command) {
        runtime.worker_threads(threads);
    }
    let runtime = runtime.enable_all().build().expect("the runtime starts");
    let outcome = runtime.block_on(command::run(cli));
    // What still hangs has had its time; waiting for blocking threads would break the promise of shutdown.timeout.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => command::report(&error),
    }
}

/// Who delivers from SQLite leaves a core to its writer, a thread of its own that events keep busy (docs/decisions/0021). `None`: a
/// thread for every core, or what `TOKIO_WORKER_THREADS` says.
#[expect(clippy::disallowed_methods, reason = "it is the runtime's own variable, and read before there is a runtime")]
fn threads(command: &cli::Command) -> Option<usize> {
    let cli::Command::Serve(arguments) = command else { return None };
    // What is wrong with the configuration is said by whoever uses it.
    let layers = arguments.layers().ok().filter(|layers| layers.text("database.url").is_none())?;
    let delivers = layers.text("server.roles")?.split(',').any(|role| role == "worker");
    let cores = thread::available_parallelism().map_or(1, usize::from);
    (delivers && env::var_os("TOKIO_WORKER_THREADS").is_none()).then_some((cores - 1).max(1))
}
