//! The servers under load, each a process of its own on free loopback ports. Dropping one ends it.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use tokio::net::TcpStream;

use super::{BenchError, http};

/// What Envoy would be limited by: far above any load, so that nothing is refused.
const ENVOY_YAML: &str =
    "domain: bench\ndescriptors:\n  - key: user\n    rate_limit: {unit: second, requests_per_unit: 1000000}\n";

/// A server process, and the folder it works in.
struct Process {
    child: Child,
    folder: PathBuf,
}

impl Process {
    fn start(command: &mut Command) -> io::Result<Process> {
        let folder =
            std::env::temp_dir().join(format!("tidegate-bench-{}-{}", std::process::id(), gate::Holder::random()));
        fs::create_dir_all(&folder)?;
        let child = command
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.join("stderr"))?)
            .spawn();
        child.map(|child| Process { child, folder: folder.clone() }).inspect_err(|_| drop(fs::remove_dir_all(&folder)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already.
        self.child.kill().ok();
        self.child.wait().ok();
        fs::remove_dir_all(&self.folder).ok();
    }
}

/// `tidegate serve` with nothing set but addresses: what a user runs.
pub(super) struct Ours {
    _process: Process,
    pub(super) http: SocketAddr,
    pub(super) grpc: SocketAddr,
    pub(super) resp: SocketAddr,
}

impl Ours {
    pub(super) async fn start(program: &Path, redis_url: Option<&str>) -> Result<Ours, BenchError> {
        let [http, ops, grpc, resp] = free_ports()?;
        let yaml = std::env::temp_dir().join(format!("tidegate-bench-{}.yaml", std::process::id()));
        fs::write(&yaml, ENVOY_YAML)?;
        let mut command = Command::new(program);
        command.arg("serve").env_clear();
        command.env("ADDR", http.to_string()).env("OPS_ADDR", ops.to_string());
        command.env("GRPC_ADDR", grpc.to_string()).env("RESP_ADDR", resp.to_string());
        command.env("TIDEGATE__LIMITS__ENVOY_FILE", &yaml).env("TIDEGATE__LIMITS__ENVOY_ALGORITHM", "gcra");
        command.env("TIDEGATE__SERVER__ROLES", "limits");
        if let Some(url) = redis_url {
            command.env("REDIS_URL", url).env("TIDEGATE__REDIS__PREFIX", format!("bench-{}:", gate::Holder::random()));
            // What is measured is Redis' answers, not what this process decides when they are late on a busy machine.
            command.env("TIDEGATE__REDIS__DEADLINE", "5s");
        }
        let process = Process::start(&mut command)?;
        reachable(http, "tidegate").await?;
        let ours = Ours { _process: process, http, grpc, resp };
        http::make_rules(http).await?;
        fs::remove_file(&yaml)?;
        Ok(ours)
    }
}

/// Handlers that answer the same bytes and decide nothing.
pub(super) struct Bare {
    _process: Process,
    pub(super) http: SocketAddr,
    pub(super) grpc: SocketAddr,
}

impl Bare {
    pub(super) async fn start(program: &Path) -> Result<Bare, BenchError> {
        let [http, grpc] = free_ports()?;
        let mut command = Command::new(program);
        command.args(["bench", "bare", &http.to_string(), &grpc.to_string()]).env_clear();
        let process = Process::start(&mut command)?;
        reachable(http, "the bare handler").await?;
        reachable(grpc, "the bare handler").await?;
        Ok(Bare { _process: process, http, grpc })
    }
}

pub(super) struct Throttlecrab {
    _process: Process,
    pub(super) http: SocketAddr,
    pub(super) grpc: SocketAddr,
    pub(super) resp: SocketAddr,
}

impl Throttlecrab {
    /// `None` where it is not installed.
    pub(super) async fn start(program: &Path) -> Option<Throttlecrab> {
        let [http, grpc, resp] = free_ports().ok()?;
        let mut command = Command::new(program);
        for (name, addr) in [("http", http), ("grpc", grpc), ("redis", resp)] {
            command.arg(format!("--{name}")).args([format!("--{name}-host"), addr.ip().to_string()]);
            command.args([format!("--{name}-port"), addr.port().to_string()]);
        }
        command.args(["--log-level", "error"]);
        let process = Process::start(&mut command).ok()?;
        for addr in [http, grpc, resp] {
            reachable(addr, "throttlecrab-server").await.ok()?;
        }
        Some(Throttlecrab { _process: process, http, grpc, resp })
    }
}

fn free_ports<const N: usize>() -> io::Result<[SocketAddr; N]> {
    // Held together, so that they differ.
    let mut held = Vec::with_capacity(N);
    for _ in 0..N {
        held.push(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?);
    }
    let mut ports = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); N];
    for (port, listener) in ports.iter_mut().zip(&held) {
        *port = listener.local_addr()?;
    }
    Ok(ports)
}

async fn reachable(addr: SocketAddr, what: &'static str) -> Result<(), BenchError> {
    for _ in 0..1_000 {
        if TcpStream::connect(addr).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err(BenchError::NotStarted(what))
}
