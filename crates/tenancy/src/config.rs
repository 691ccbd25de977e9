//! The section `[security]`: who may come in, and what secrets are sealed with.

use std::{
    fs, io,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use platform::{config::Invalid, secret::Secret};
use serde::Deserialize;

use crate::vault::Vault;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub admin_key: Secret,
    pub master_key: Secret,
}

/// How strangers are met.
#[derive(Clone, Debug, PartialEq)]
pub enum Doors {
    /// No key is needed, because only this machine can connect.
    Dev,
    /// Every call needs a key; this one opens everything.
    Locked { admin_key: Secret },
}

#[derive(Clone)]
pub struct Config {
    pub doors: Doors,
    master_key: MasterKey,
}

#[derive(Clone)]
enum MasterKey {
    Given(Secret),
    /// On loopback one is made at the first start and kept here.
    InFile(PathBuf),
}

impl Config {
    /// Refuses an address that others can reach, unless both keys are set.
    pub fn new(file: &File, listeners: &[(&str, SocketAddr)], data_dir: &Path) -> Result<Self, Invalid> {
        let exposed = listeners.iter().find(|(_, address)| !address.ip().is_loopback());
        if let Some((key, address)) = exposed {
            require(&file.admin_key, "security.admin_key", "TIDEGATE_ADMIN_KEY", key, *address)?;
            require(&file.master_key, "security.master_key", "TIDEGATE_MASTER_KEY", key, *address)?;
        }
        let doors =
            if file.admin_key.is_empty() { Doors::Dev } else { Doors::Locked { admin_key: file.admin_key.clone() } };
        let master_key = if file.master_key.is_empty() {
            MasterKey::InFile(data_dir.join("master.key"))
        } else {
            Vault::new(&file.master_key)?;
            MasterKey::Given(file.master_key.clone())
        };
        Ok(Config { doors, master_key })
    }

    /// Opens the vault; without a given master key the first start makes one.
    pub fn vault(&self) -> Result<Vault, Invalid> {
        match &self.master_key {
            MasterKey::Given(key) => Vault::new(key),
            MasterKey::InFile(path) => {
                let key = read_or_make(path).map_err(|error| {
                    Invalid::new(
                        "server.data_dir",
                        format!("the master key {} could not be kept: {error}", path.display()),
                    )
                })?;
                Vault::new(&key).map_err(|invalid| {
                    Invalid::new(
                        invalid.key,
                        format!(
                            "{} holds no master key: bring the file back from a backup, or set TIDEGATE_MASTER_KEY",
                            path.display()
                        ),
                    )
                })
            }
        }
    }
}

fn require(value: &Secret, key: &str, variable: &str, listener: &str, address: SocketAddr) -> Result<(), Invalid> {
    if value.is_empty() {
        return Err(Invalid::new(
            key,
            format!(
                "{listener} is {address}, which other machines can reach, so {variable} must be set (make one with `openssl rand -hex 32`); or listen on 127.0.0.1"
            ),
        ));
    }
    Ok(())
}

fn read_or_make(path: &Path) -> io::Result<Secret> {
    match fs::read_to_string(path) {
        Ok(text) => return Ok(Secret::new(text.trim())),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Err(_) => (),
    }
    if let Some(folder) = path.parent() {
        platform::db::sqlite::make_private_folder(folder)?;
    }
    let mut bytes = [0; 32];
    aws_lc_rs::rand::fill(&mut bytes).map_err(io::Error::other)?;
    let text = hex::encode(bytes);
    // Two first starts may race: the file is put in place whole, and only once.
    let draft = path.with_extension(format!("draft-{}", std::process::id()));
    io::Write::write_all(
        &mut fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?,
        text.as_bytes(),
    )?;
    let linked = fs::hard_link(&draft, path);
    fs::remove_file(&draft)?;
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => read_or_make(path),
        linked => linked.map(|()| Secret::new(text)),
    }
}
