//! A script: sent as its hash, and as text only to a server that does not know it.

use std::sync::OnceLock;

/// Lua compiled into the binary. `static CHECK: Script = Script::new(concat!(include_str!("rules.lua"), ..))`.
#[derive(Debug)]
pub(crate) struct Script {
    code: &'static str,
    sha: OnceLock<String>,
}

impl Script {
    pub(crate) const fn new(code: &'static str) -> Script {
        Script { code, sha: OnceLock::new() }
    }

    pub(crate) fn code(&self) -> &'static str {
        self.code
    }

    pub(super) fn sha(&self) -> &str {
        self.sha.get_or_init(|| redis::Script::new(self.code).get_hash().to_owned())
    }

    pub(super) fn by_hash(&self, keys: &[String], args: &[Vec<u8>]) -> redis::Cmd {
        command("EVALSHA", self.sha(), keys, args)
    }

    pub(super) fn by_text(&self, keys: &[String], args: &[Vec<u8>]) -> redis::Cmd {
        command("EVAL", self.code(), keys, args)
    }
}

fn command(name: &str, script: &str, keys: &[String], args: &[Vec<u8>]) -> redis::Cmd {
    let mut command = redis::cmd(name);
    command.arg(script).arg(keys.len()).arg(keys).arg(args);
    command
}
