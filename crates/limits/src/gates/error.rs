//! What can go wrong at a gate, and the status each becomes. A refusal is no error: it is an answer.

use axum::http::StatusCode;
use platform::{config::Invalid, db, problem::Problem};

use super::store::MOST_POLICIES;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("this is no pass of this target: show the pass that `enter` of the same target gave you")]
    ForeignPass,
    #[error("a tenant may store {MOST_POLICIES} policies: take some away, or let callers bring theirs")]
    TooManyPolicies,
    #[error("Redis did not take the order; this replica obeys it alone: try again")]
    NotOrdered(#[source] gate::Error),
    #[error(transparent)]
    Database(#[from] db::Error),
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        let detail = error.to_string();
        match error {
            Error::Invalid(Invalid { key, problem }) => Problem::invalid(key, problem),
            Error::ForeignPass => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_pass", detail).field("pass"),
            Error::TooManyPolicies => Problem::conflict("too_many_policies", detail),
            Error::NotOrdered(_) => Problem::unavailable("redis_unavailable", detail, 1),
            Error::Database(error) => error.into(),
        }
    }
}
