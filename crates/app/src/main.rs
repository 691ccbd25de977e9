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
    match command::run(cli::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => command::report(&error),
    }
}
