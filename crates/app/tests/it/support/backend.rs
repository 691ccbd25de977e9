//! The same test on SQLite and on a real PostgreSQL.

use std::fs;

use testkit::postgres;

use super::{Setup, Tidegate};

/// The database under a test.
pub(crate) enum Backend {
    Sqlite,
    Postgres(postgres::Shared),
}

impl Backend {
    /// `serve` with the door locked, on this database.
    pub(crate) fn locked(&self) -> Setup {
        self.under(Setup::locked())
    }

    pub(crate) fn under(&self, setup: Setup) -> Setup {
        match self {
            Backend::Sqlite => setup,
            Backend::Postgres(postgres) => setup.env("DATABASE_URL", &postgres.url()),
        }
    }

    /// Everything the database holds, as a thief would find it.
    pub(crate) fn dump(&self, tidegate: &Tidegate) -> Vec<u8> {
        match self {
            Backend::Sqlite => fs::read_dir(tidegate.data_dir())
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains(".db")))
                .flat_map(|path| fs::read(path).unwrap())
                .collect(),
            Backend::Postgres(postgres) => postgres
                .sql("SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'")
                .into_iter()
                .flat_map(|table| postgres.sql(&format!("SELECT t::text FROM {} t", table[0].as_ref().unwrap())))
                .flat_map(|row| row[0].clone().unwrap().into_bytes())
                .collect(),
        }
    }
}

/// Makes two tests of each function: `name::on_sqlite` and `name::on_postgres`.
macro_rules! each_backend {
    ($($body:ident)*) => {$(
        mod $body {
            #[test]
            fn on_sqlite() {
                super::$body(&$crate::support::Backend::Sqlite);
            }

            #[test]
            fn on_postgres() {
                let postgres = testkit::need!(testkit::postgres());
                super::$body(&$crate::support::Backend::Postgres(postgres));
            }
        }
    )*};
}

pub(crate) use each_backend;
