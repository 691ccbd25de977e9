//! A script: sent as its hash, and as text only to a server that does not know it.

use std::sync::OnceLock;

use redis::{RedisWrite, ToRedisArgs};

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

    pub(super) fn by_hash(&self, keys: &[String], args: &[Arg]) -> redis::Cmd {
        command("EVALSHA", self.sha(), keys, args)
    }

    pub(super) fn by_text(&self, keys: &[String], args: &[Arg]) -> redis::Cmd {
        command("EVAL", self.code(), keys, args)
    }
}

fn command(name: &str, script: &str, keys: &[String], args: &[Arg]) -> redis::Cmd {
    let bytes = script.len() + keys.iter().map(String::len).sum::<usize>() + args.len() * 8;
    let mut command = redis::Cmd::with_capacity(3 + keys.len() + args.len(), bytes);
    command.arg(name).arg(script).arg(keys.len()).arg(keys).arg(args);
    command
}

/// One argument of a script.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Arg {
    Int(u64),
    Text(String),
    Bytes(Vec<u8>),
}

impl From<u64> for Arg {
    fn from(value: u64) -> Arg {
        Arg::Int(value)
    }
}

impl From<&str> for Arg {
    fn from(value: &str) -> Arg {
        Arg::Text(value.to_owned())
    }
}

impl From<String> for Arg {
    fn from(value: String) -> Arg {
        Arg::Text(value)
    }
}

impl From<Vec<u8>> for Arg {
    fn from(value: Vec<u8>) -> Arg {
        Arg::Bytes(value)
    }
}

impl ToRedisArgs for Arg {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        match self {
            Arg::Int(value) => value.write_redis_args(out),
            Arg::Text(value) => value.write_redis_args(out),
            Arg::Bytes(value) => value.write_redis_args(out),
        }
    }
}
