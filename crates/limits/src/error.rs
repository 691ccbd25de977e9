//! What can go wrong when a decision is asked for, and the status each becomes. A refusal is no error: it is an answer.

use axum::http::StatusCode;
use gate::limiter::Policy;
use platform::{config::Invalid, db, problem::Problem};

use crate::engine::{MOST_KEY_BYTES, MOST_TOGETHER, Wrong};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{field} may not be empty")]
    Empty { field: &'static str },
    #[error("a key may have at most {MOST_KEY_BYTES} bytes, this one has {bytes}")]
    KeyTooLong { bytes: usize },
    #[error("no rule speaks for the key {key:?}")]
    NoRule { key: String },
    #[error("the cost must be at least 1")]
    NoCost,
    #[error("a cost of {cost} is above the {capacity} that rule {rule:?} lets pass at once, so it can never pass")]
    AboveCapacity { cost: u64, capacity: u64, rule: String },
    #[error("a cost of {cost} is above the {} that any rule can count", Policy::MOST_LIMIT)]
    CostAboveAll { cost: u64 },
    #[error("the domain {domain:?} is in no file of limits.envoy_file")]
    UnknownDomain { domain: String },
    #[error("{count} limits at once are too many: at most {MOST_TOGETHER} are decided together")]
    TooManyTogether { count: usize },
    #[error("the key {key:?} is named twice: add its costs up")]
    SameKeyTwice { key: String },
    #[error("on a Redis cluster keys that are decided together need one hash tag: write them as {{tag}}rest")]
    DifferentSlots,
    #[error("there is no reservation {id:?}, or it ended long ago")]
    NoReservation { id: String },
    #[error("Redis does not answer right now; try again")]
    RedisUnavailable,
    #[error("too many reservations are open; settle some, or let them last shorter")]
    TooManyReservations,
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error(transparent)]
    Database(#[from] db::Error),
    #[error(transparent)]
    Gate(gate::Error),
}

impl From<gate::Error> for Error {
    fn from(error: gate::Error) -> Self {
        match error {
            gate::Error::KeyEmpty => Error::Empty { field: "key" },
            gate::Error::KeyTooLong { bytes } => Error::KeyTooLong { bytes },
            gate::Error::DifferentSlots => Error::DifferentSlots,
            gate::Error::Overloaded => Error::TooManyReservations,
            other => Error::Gate(other),
        }
    }
}

impl Error {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Empty { .. }
            | Error::KeyTooLong { .. }
            | Error::NoCost
            | Error::CostAboveAll { .. }
            | Error::Invalid(_) => "invalid_field",
            Error::NoRule { .. } => "no_rule",
            Error::AboveCapacity { .. } => "cost_above_capacity",
            Error::UnknownDomain { .. } => "unknown_domain",
            Error::TooManyTogether { .. } => "too_many_keys",
            Error::SameKeyTwice { .. } => "same_key_twice",
            Error::DifferentSlots => "different_slots",
            Error::NoReservation { .. } => "no_reservation",
            Error::RedisUnavailable => "redis_unavailable",
            Error::TooManyReservations => "too_many_reservations",
            Error::Database(_) => "database_unavailable",
            Error::Gate(_) => "internal",
        }
    }

    /// The part of the request that is wrong.
    pub fn field(&self) -> Option<&'static str> {
        match self {
            Error::Empty { field } => Some(field),
            Error::KeyTooLong { .. } | Error::NoRule { .. } | Error::SameKeyTwice { .. } => Some("key"),
            Error::NoCost | Error::AboveCapacity { .. } | Error::CostAboveAll { .. } => Some("cost"),
            Error::UnknownDomain { .. } => Some("domain"),
            Error::TooManyTogether { .. } | Error::DifferentSlots => Some("checks"),
            Error::NoReservation { .. } => Some("id"),
            Error::RedisUnavailable
            | Error::TooManyReservations
            | Error::Invalid(_)
            | Error::Database(_)
            | Error::Gate(_) => None,
        }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::Database(error) => return error.into(),
            Error::Invalid(Invalid { key, problem }) => return Problem::invalid(key, problem),
            Error::Gate(_) => return Problem::internal(&error),
            Error::RedisUnavailable | Error::TooManyReservations => {
                return Problem::unavailable(error.code(), error.to_string(), 1);
            }
            Error::NoRule { .. } | Error::UnknownDomain { .. } | Error::NoReservation { .. } => StatusCode::NOT_FOUND,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        let detail = match &error {
            Error::NoRule { .. } => {
                format!("{error}: make one with POST /v1/limits/rules, or one for every key with \"key\": \"*\"")
            }
            _ => error.to_string(),
        };
        let problem = Problem::new(status, error.code(), detail);
        match error.field() {
            Some(field) => problem.field(field),
            None => problem,
        }
    }
}

/// The field of one question of many has its place before it.
impl From<Wrong> for Problem {
    fn from(Wrong { index, error }: Wrong) -> Self {
        let field = error.field();
        let problem = Problem::from(error);
        match (index, field) {
            (Some(index), Some(field)) => problem.field(format!("checks[{index}].{field}")),
            (Some(index), None) => problem.field(format!("checks[{index}]")),
            (None, _) => problem,
        }
    }
}
