//! The binary `tidegate`: arguments -> configuration -> roles -> drain.

mod api;
mod cli;
mod command;
mod config;
mod health;
mod serve;

use std::process::ExitCode;

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
    let runtime = runtime.enable_all().build().expect("the runtime starts");
    let outcome = runtime.block_on(command::run(cli));
    // What still hangs has had its time; waiting for blocking threads would break the promise of shutdown.timeout.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => command::report(&error),
    }
}
