//! PostgreSQL: a database of one's own on the run's shared server, and servers of one's own to break.
//!
//! A test gets a database, not a schema: advisory locks and notifications are shared by all schemas of a database.
//! Databases are not dropped; they go with the server.

pub(crate) mod install;
mod server;
pub mod wire;

use std::sync::OnceLock;

pub use server::Server;
pub(crate) use server::arguments;

use crate::{Server as Kind, Unavailable, find, fresh, ledger};

/// An empty database on the shared server.
#[derive(Clone, Debug)]
pub struct Shared {
    port: u16,
    database: String,
}

/// A new database on the shared server of this run: the one `servers run` started, else one started once for this
/// process.
pub fn shared() -> Result<Shared, Unavailable> {
    static PORT: OnceLock<Result<u16, Unavailable>> = OnceLock::new();
    let port = PORT.get_or_init(shared_port).clone()?;
    let database = fresh::word();
    wire::query(port, "postgres", &format!("CREATE DATABASE {database}"))
        .map_err(|error| Unavailable::new(Kind::PostgreSql, format!("no database of one's own: {error}")))?;
    ledger::used(Kind::PostgreSql);
    Ok(Shared { port, database })
}

fn shared_port() -> Result<u16, Unavailable> {
    static OWN: OnceLock<Server> = OnceLock::new();
    if let Some(port) = find::port_of_the_run(Kind::PostgreSql)? {
        return Ok(port);
    }
    let server = Server::launch(&[])?;
    Ok(OWN.get_or_init(|| server).port())
}

impl Shared {
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{}", self.port, self.database)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn database(&self) -> &str {
        &self.database
    }

    /// A role that may read and write the rows of every table there is by now, and nothing else.
    pub fn url_for_rows_alone(&self) -> String {
        let role = format!("{}_rows", self.database);
        self.sql(&format!("CREATE ROLE {role} LOGIN"));
        self.sql(&format!("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}"));
        self.sql(&format!("GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}"));
        format!("postgres://{role}@127.0.0.1:{}/{}", self.port, self.database)
    }

    /// One statement in this database; its rows as text.
    ///
    /// # Panics
    /// When the server does not answer, or refuses the statement.
    pub fn sql(&self, statement: &str) -> Vec<wire::Row> {
        match wire::query(self.port, &self.database, statement) {
            Ok(rows) => rows,
            Err(error) => panic!("postgres did not run {statement:?}: {error}"),
        }
    }
}
