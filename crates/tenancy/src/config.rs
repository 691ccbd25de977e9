//! The section `[security]`: who may come in, and what secrets are sealed with.

use std::{
    fs,
    io::{self, Write},
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use platform::{
    config::{Invalid, Span, TEN_YEARS},
    secret::Secret,
};
use serde::Deserialize;

use crate::vault::Vault;

/// Of an admin key: what a person makes up as a placeholder is shorter.
const SHORTEST: usize = 16;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub admin_key: Secret,
    pub master_key: Secret,
    pub audit_retention: Span,
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
    /// How long audit entries are kept, and keys that have ended.
    pub audit_retention: Duration,
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
        let doors = match file.admin_key.is_empty() {
            true => Doors::Dev,
            false => Doors::Locked { admin_key: admin_key(&file.admin_key)? },
        };
        let master_key = if file.master_key.is_empty() {
            MasterKey::InFile(data_dir.join("master.key"))
        } else {
            Vault::new(&file.master_key)?;
            MasterKey::Given(file.master_key.clone())
        };
        let day = Duration::from_secs(86_400);
        let audit_retention = file.audit_retention.within("security.audit_retention", day, TEN_YEARS)?;
        Ok(Config { doors, audit_retention, master_key })
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

/// Without the white space around it, which no caller could send.
fn admin_key(text: &Secret) -> Result<Secret, Invalid> {
    let key = text.expose().trim();
    if key.len() < SHORTEST || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Invalid::new(
            "security.admin_key",
            format!(
                "an admin key has at least {SHORTEST} characters, all of them visible ASCII without spaces: make one with `openssl rand -hex 32`"
            ),
        ));
    }
    Ok(Secret::new(key))
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
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(path),
        text => text.map(|text| Secret::new(text.trim())),
    }
}

/// What it seals may be on disk a moment later, on another machine's even: so it is on disk first.
fn make(path: &Path) -> io::Result<Secret> {
    let folder = path.parent().unwrap_or(Path::new("."));
    platform::db::sqlite::make_private_folder(folder)?;
    // Two first starts may race: one writes, and the others read what it wrote. A draft whose writer died is written anew.
    let draft_path = path.with_extension("draft");
    let mut draft = fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&draft_path)?;
    draft.lock()?;
    if !path.exists() {
        let mut bytes = [0; 32];
        aws_lc_rs::rand::fill(&mut bytes).map_err(io::Error::other)?;
        draft.set_len(0)?;
        draft.write_all(hex::encode(bytes).as_bytes())?;
        draft.sync_all()?;
        fs::rename(&draft_path, path)?;
    }
    fs::File::open(folder)?.sync_all()?;
    match fs::remove_file(&draft_path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => (),
    }
    read_or_make(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a container every start has the same process id, and so the same name for its draft.
    #[test]
    fn a_draft_of_a_master_key_whose_writer_died_is_in_nobodys_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("master.key");
        let of_older_versions = format!("draft-{}", std::process::id());
        for left in ["draft", &of_older_versions] {
            fs::write(path.with_extension(left), "half of a k").unwrap();
        }
        let key = read_or_make(&path).unwrap();
        Vault::new(&key).unwrap();
        assert_eq!(read_or_make(&path).unwrap().expose(), key.expose());
        assert!(!path.with_extension("draft").exists());
    }

    #[test]
    fn first_starts_that_race_get_the_same_master_key() {
        for _ in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("data/master.key");
            let made = std::thread::scope(|scope| {
                let starts = [(); 8].map(|()| scope.spawn(|| read_or_make(&path).unwrap().expose().to_owned()));
                starts.map(|start| start.join().unwrap())
            });
            assert!(made.iter().all(|key| *key == made[0] && key.len() == 64), "{made:?}");
            let left: Vec<_> =
                fs::read_dir(path.parent().unwrap()).unwrap().map(|file| file.unwrap().file_name()).collect();
            assert_eq!(left, ["master.key"]);
        }
    }

    fn doors(admin_key: &str) -> Result<Doors, Invalid> {
        let audit_retention = Span(TEN_YEARS);
        let file = File { admin_key: Secret::new(admin_key), master_key: Secret::default(), audit_retention };
        Config::new(&file, &[], Path::new("data")).map(|config| config.doors)
    }

    /// Secrets made from files end with a newline, and headers are read without it: it was 401 for ever.
    #[test]
    fn white_space_around_an_admin_key_is_not_part_of_it() {
        let locked = Doors::Locked { admin_key: Secret::new("0123456789abcdef") };
        for text in ["0123456789abcdef", "0123456789abcdef\n", " 0123456789abcdef\r\n\t"] {
            assert_eq!(doors(text).unwrap(), locked, "{text:?}");
        }
    }

    #[test]
    fn a_key_that_can_be_guessed_or_not_be_sent_is_refused() {
        for text in ["x", "0123456789abcde", " \n", "\n", "0123456789 abcdef", "0123456789\nabcdef", "0123456789abcdeü"]
        {
            let invalid = doors(text).unwrap_err();
            assert_eq!(invalid.key, "security.admin_key", "{text:?}");
            assert!(invalid.problem.contains("openssl rand -hex 32"), "{invalid:?}");
        }
        assert_eq!(doors("").unwrap(), Doors::Dev);
    }
}
