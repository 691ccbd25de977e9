//! The runtime that a command runs on.

use std::{env, thread};

use platform::db;
use tokio::runtime::Builder;

use crate::config::{Config, Role};

/// A thread for every core, or as many as `TOKIO_WORKER_THREADS` says. Who delivers from SQLite leaves a core to its writer, a
/// thread of its own that events keep busy (docs/decisions/0021).
#[expect(clippy::disallowed_methods, reason = "it is the runtime's own variable")]
pub(super) fn serving(config: &Config) -> Builder {
    let mut runtime = Builder::new_multi_thread();
    let delivers = config.roles.contains(&Role::Worker) && matches!(config.database, db::Config::Sqlite(_));
    if delivers && env::var_os("TOKIO_WORKER_THREADS").is_none() {
        runtime.worker_threads((cores() - 1).max(1));
    }
    runtime
}

pub(super) fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Runs a command to its end.
pub(super) fn run(mut runtime: Builder, command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = runtime.enable_all().build().expect("the runtime starts");
    let outcome = runtime.block_on(command);
    // What still hangs has had its time; waiting for blocking threads would break the promise of shutdown.timeout.
    runtime.shutdown_background();
    outcome
}
