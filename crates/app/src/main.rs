//! The binary `tidegate`: arguments -> configuration -> roles -> drain.

mod api;
mod cli;
mod command;
mod config;
mod health;
mod serve;

use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("the runtime starts");
    let outcome = runtime.block_on(command::run(cli));
    // What still hangs has had its time; waiting for blocking threads would break the promise of shutdown.timeout.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => command::report(&error),
    }
}
