//! Where programs and shared servers are.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::{Server, Unavailable};

/// What `servers run` puts before the reason where a server could not be started, so that no test process tries again.
pub const UNAVAILABLE: &str = "unavailable: ";

/// An executable by name, as a shell would find it.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_executable(file))
}

pub(crate) fn is_executable(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The shared server's address, where `servers run` is behind this process.
pub(crate) fn shared_by_the_run(server: Server) -> Result<Option<String>, Unavailable> {
    match env::var(server.variable()) {
        Err(_) => Ok(None),
        Ok(value) => match value.strip_prefix(UNAVAILABLE) {
            Some(reason) => Err(Unavailable::new(server, reason)),
            None => Ok(Some(value)),
        },
    }
}

/// The shared server's port; all shared servers are on 127.0.0.1.
pub(crate) fn port_of_the_run(server: Server) -> Result<Option<u16>, Unavailable> {
    let Some(address) = shared_by_the_run(server)? else { return Ok(None) };
    match address.strip_prefix("127.0.0.1:").and_then(|port| port.parse().ok()) {
        Some(port) => Ok(Some(port)),
        None => Err(Unavailable::new(server, format!("{} is not 127.0.0.1:port: {address}", server.variable()))),
    }
}
