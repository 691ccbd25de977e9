//! What can go wrong in dispatch, and the status each becomes.

use std::{path::PathBuf, sync::Arc};

use axum::http::StatusCode;
use platform::{config::Invalid, db, http_client::Refused, problem::Problem};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Database(#[from] db::Error),
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("the URL is refused: {}", .0.detail)]
    Url(Refused),
    #[error("a secret could not be opened")]
    Vault(#[from] tenancy::vault::Error),
    #[error("a limit is refused")]
    Gate(#[from] gate::Error),
    #[error(
        "another worker delivers from {0} already: stop it, or set database.url to a PostgreSQL, which serves any number of workers"
    )]
    SecondWorker(PathBuf),
    #[error(
        "the tables of {first} and later are missing, and this role of PostgreSQL may not make them: run `tidegate migrate` now and once a day as the role that owns the tables"
    )]
    NoDay { first: time::Date, has_today: bool, source: db::Error },
    #[cfg(feature = "kafka")]
    #[error(transparent)]
    Kafka(#[from] rdkafka::error::KafkaError),
    #[cfg(not(feature = "kafka"))]
    #[error("this binary was built without Kafka")]
    NoKafka,
    #[error("Kafka does not take events right now")]
    KafkaAway,
    #[error("the brokers take no record as large as this event")]
    TooLargeForKafka,
    #[error("the batch it was in failed")]
    Batch(#[source] Arc<Error>),
    #[cfg(feature = "kafka")]
    #[error("writing it panicked; the log has the cause")]
    Panicked,
    #[error("too much waits to be written")]
    Busy,
    #[error("the process is shutting down")]
    Closed,
}

impl Error {
    /// Would the same call succeed once the database is back?
    pub fn is_transient(&self) -> bool {
        match self {
            Error::Database(error) => error.is_transient(),
            Error::Batch(error) => error.is_transient(),
            Error::Busy | Error::KafkaAway => true,
            _ => false,
        }
    }

    /// Did the database take too long for what it was given?
    #[cfg(feature = "kafka")]
    pub(crate) fn is_deadline(&self) -> bool {
        matches!(self, Error::Database(db::Error::Deadline(_)))
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        Error::Url(refused)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::Database(error) => error.into(),
            Error::Invalid(Invalid { key, problem }) => Problem::invalid(key, problem),
            Error::Url(refused) => {
                Problem::new(StatusCode::UNPROCESSABLE_ENTITY, refused.code, refused.detail).field("url")
            }
            Error::Batch(error) if error.is_transient() => {
                Problem::unavailable("database_unavailable", "the database does not answer right now; try again", 1)
            }
            Error::Busy => Problem::unavailable("busy", "too many events wait to be written; try again", 1),
            Error::Closed => Problem::unavailable("shutting_down", "this replica is shutting down; try another", 1),
            Error::KafkaAway => {
                Problem::unavailable("kafka_unavailable", "Kafka does not take events right now; try again", 1)
            }
            Error::TooLargeForKafka => Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "event_too_large",
                "the event is larger than a record of the topic may be: send less, or raise its max.message.bytes",
            ),
            #[cfg(feature = "kafka")]
            Error::Kafka(_) | Error::Panicked => Problem::internal(&error),
            #[cfg(not(feature = "kafka"))]
            Error::NoKafka => Problem::internal(&error),
            Error::Vault(error) => Problem::conflict(
                "unusable_subscription",
                format!(
                    "{error}: give this replica the key that it was sealed with (TIDEGATE_MASTER_KEY takes several, with commas \
                     between them), or delete the subscription and make it anew"
                ),
            ),
            Error::Batch(_) | Error::Gate(_) => Problem::internal(&error),
            Error::SecondWorker(_) | Error::NoDay { .. } => Problem::internal(&error),
        }
    }
}

#[cfg(test)]
mod tests {
    use platform::problem::Chain;

    use super::*;

    /// The caller was told that the log has the cause, and it had not.
    #[test]
    fn a_batch_that_failed_says_why_to_the_end() {
        let error = Error::Batch(Arc::new(db::Error::Sqlite(rusqlite::Error::InvalidQuery).into()));
        let cause = rusqlite::Error::InvalidQuery;
        assert_eq!(Chain(&error).to_string(), format!("the batch it was in failed: SQLite failed: {cause}"));
    }
}
