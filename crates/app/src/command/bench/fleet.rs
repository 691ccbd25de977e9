//! Processes for a bench: this same binary as server, worker and sink, each on a port of its own, gone with its owner.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, bail};
use platform::shutdown::Tasks;
use serde::Deserialize;
use tokio::time::Instant;

use super::{cpu, stores::Stores};
use crate::{cli, command::client::Server};

const PATIENCE: Duration = Duration::from_secs(30);

/// Whose server it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Build<'a> {
    This,
    Other(&'a Path),
}

/// A process of ours. It is killed when it is dropped.
pub(super) struct Process {
    child: Child,
    pub addr: SocketAddr,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// What `tidegate sink` tells.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct SinkState {
    pub distinct: u64,
    pub duplicates: u64,
    pub latency_us: Option<[u32; 3]>,
}

impl Process {
    pub(super) async fn serve(build: Build<'_>, roles: &str, stores: &Stores, folder: &Path) -> anyhow::Result<Self> {
        let [addr, ops, grpc] = [free_address()?, free_address()?, free_address()?];
        let flags = ["serve", "--roles", roles, "--addr", &addr.to_string(), "--ops-addr", &ops.to_string()];
        let mut command = build.command()?;
        command.args(flags).args(["--grpc-addr", &grpc.to_string()]).arg("--data-dir").arg(folder);
        command.env("TIDEGATE__TELEMETRY__LOG", "error");
        command.envs(stores.variables.iter().map(|(name, value)| (name, value)));
        let mut process = Process { child: command.spawn().context("a server could not be started")?, addr };
        process.ready("/health/ready").await?;
        Ok(process)
    }

    pub(super) async fn sink(flags: &[&str]) -> anyhow::Result<Self> {
        let addr = free_address()?;
        let mut command = Build::This.command()?;
        command.args(["sink", "--quiet", "--addr", &addr.to_string()]).args(flags);
        let mut process = Process { child: command.spawn().context("a sink could not be started")?, addr };
        process.ready("/").await?;
        Ok(process)
    }

    /// What intake is measured against, apart from the load as our own server is.
    pub(super) async fn bare_intake() -> anyhow::Result<Self> {
        let addr = free_address()?;
        let mut command = Build::This.command()?;
        command.args(["bench", "bare-intake", &addr.to_string()]);
        let mut process = Process { child: command.spawn().context("a server could not be started")?, addr };
        process.ready("/").await?;
        Ok(process)
    }

    pub(super) fn server(&self, tasks: &Tasks) -> anyhow::Result<Server> {
        Ok(Server::new(&cli::Server::at(format!("http://{}", self.addr)), tasks.clone())?)
    }

    /// Processor time so far, in seconds.
    pub(super) fn cpu(&self) -> f64 {
        cpu::seconds(self.child.id())
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    async fn ready(&mut self, path: &str) -> anyhow::Result<()> {
        let tasks = Tasks::new();
        let mut client = self.server(&tasks)?.client();
        let deadline = Instant::now() + PATIENCE;
        while client.get::<serde::de::IgnoredAny>(path).await.is_err() {
            if let Some(status) = self.child.try_wait().context("a process cannot be looked after")? {
                bail!("a process of the bench ended with {status}; its last words are above");
            }
            if Instant::now() > deadline {
                bail!("a process of the bench is not ready after {PATIENCE:?}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tasks.stop(Duration::ZERO).await;
        Ok(())
    }
}

impl Build<'_> {
    /// Nothing of this process's environment is meant for it.
    fn command(self) -> anyhow::Result<Command> {
        let mut command = match self {
            Build::This => Command::new(std::env::current_exe().context("this binary cannot be found")?),
            Build::Other(binary) => Command::new(binary),
        };
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::null());
        Ok(command)
    }
}

pub(super) fn free_address() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?;
    listener.local_addr().context("no free port")
}
