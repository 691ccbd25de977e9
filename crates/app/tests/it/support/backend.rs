//! The same test on SQLite, on a real PostgreSQL, and where events go through a real Kafka.

use std::fs;

use testkit::{Unavailable, kafka, postgres};

use super::{Setup, Tidegate};

/// The database under a test.
pub(crate) enum Backend {
    Sqlite,
    Postgres(postgres::Shared),
    /// Events through a topic of their own, rows in PostgreSQL.
    Kafka(postgres::Shared, kafka::Shared),
}

impl Backend {
    pub(crate) fn kafka() -> Result<Self, Unavailable> {
        Ok(Backend::Kafka(testkit::postgres()?, testkit::kafka()?))
    }

    /// `serve` with the door locked, on this database.
    pub(crate) fn locked(&self) -> Setup {
        self.under(Setup::locked())
    }

    pub(crate) fn under(&self, setup: Setup) -> Setup {
        match self {
            Backend::Sqlite => setup,
            Backend::Postgres(postgres) => setup.env("DATABASE_URL", &postgres.url()),
            Backend::Kafka(postgres, kafka) => {
                on_topic(setup, &kafka.brokers(), kafka.topic()).env("DATABASE_URL", &postgres.url())
            }
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
            Backend::Postgres(postgres) | Backend::Kafka(postgres, _) => postgres
                .sql("SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'")
                .into_iter()
                .flat_map(|table| postgres.sql(&format!("SELECT t::text FROM {} t", table[0].as_ref().unwrap())))
                .flat_map(|row| row[0].clone().unwrap().into_bytes())
                .collect(),
        }
    }
}

/// Kafka on a machine that is busy with other tests: patient with it, and soon done with a worker that died.
pub(crate) fn on_topic(setup: Setup, brokers: &str, topic: &str) -> Setup {
    setup
        .env("KAFKA_BROKERS", brokers)
        .env("KAFKA_TOPIC", topic)
        .env("KAFKA_CONSUMER_GROUP", topic)
        .env("TIDEGATE__KAFKA__PARTITIONS", "6")
        .env("TIDEGATE__KAFKA__SESSION_TIMEOUT", "6s")
        .env("TIDEGATE__KAFKA__DELIVERY_TIMEOUT", "10s")
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

/// The same and a third, `name::on_kafka`.
macro_rules! each_queue {
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

            #[cfg(feature = "kafka")]
            #[test]
            fn on_kafka() {
                super::$body(&testkit::need!($crate::support::Backend::kafka()));
            }
        }
    )*};
}

pub(crate) use {each_backend, each_queue};
