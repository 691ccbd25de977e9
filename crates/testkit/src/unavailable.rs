//! Why a test cannot have its server, in words that say what to install.

use std::fmt;

/// The kinds of server a test can ask for, named as people write them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Server {
    Redis,
    PostgreSql,
    Kafka,
}

impl Server {
    pub const ALL: [Server; 3] = [Server::Redis, Server::PostgreSql, Server::Kafka];

    pub fn name(self) -> &'static str {
        match self {
            Server::Redis => "Redis",
            Server::PostgreSql => "PostgreSQL",
            Server::Kafka => "Kafka",
        }
    }

    /// Where `servers run` leaves the shared server's address for the tests.
    pub fn variable(self) -> &'static str {
        match self {
            Server::Redis => "TESTKIT_REDIS",
            Server::PostgreSql => "TESTKIT_POSTGRES",
            Server::Kafka => "TESTKIT_KAFKA",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Unavailable {
    /// The server or program, as people write it.
    pub what: &'static str,
    pub reason: String,
}

impl Unavailable {
    pub fn new(server: Server, reason: impl fmt::Display) -> Unavailable {
        Unavailable::program(server.name(), reason)
    }

    /// For what a test needs that is no server, such as another language's library.
    pub fn program(what: &'static str, reason: impl fmt::Display) -> Unavailable {
        Unavailable { what, reason: reason.to_string() }
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} is not available: {}", self.what, self.reason)
    }
}

impl std::error::Error for Unavailable {}

/// What a test function can return when it is skipped.
pub trait Skipped {
    fn skipped() -> Self;
}

impl Skipped for () {
    fn skipped() {}
}

impl<E> Skipped for Result<(), E> {
    fn skipped() -> Self {
        Ok(())
    }
}
