//! Mistakes in gRPC's own form: the status by kind, a sentence that names the field and the fix, and the stable code as
//! metadata (`tidegate-code`) for programs.

use axum::http::StatusCode;
use platform::problem::Problem;
use tonic::{Code, Status, metadata::MetadataValue};

/// The status of a problem.
pub(super) fn status(problem: impl Into<Problem>) -> Status {
    let problem = problem.into();
    let code = match problem.status() {
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::NOT_FOUND => Code::NotFound,
        StatusCode::CONFLICT => Code::FailedPrecondition,
        StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
        status if status.is_client_error() => Code::InvalidArgument,
        _ => Code::Internal,
    };
    let message = match problem.wrong_field() {
        Some(field) => format!("{field}: {}", problem.detail()),
        None => problem.detail().to_owned(),
    };
    let mut status = Status::new(code, message);
    status.metadata_mut().insert("tidegate-code", MetadataValue::from_static(problem.code()));
    status
}

/// A request that is wrong by itself.
pub(super) fn invalid(field: impl Into<String>, detail: impl Into<String>) -> Status {
    status(Problem::invalid(field, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_keeps_its_kind_its_field_and_its_code() {
        let status = status(Problem::invalid("key", "a key may not be empty"));
        assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "key: a key may not be empty"));
        assert_eq!(status.metadata().get("tidegate-code").unwrap(), "invalid_field");
        let status = super::status(Problem::unavailable("database_unavailable", "try again", 1));
        assert_eq!(status.code(), Code::Unavailable);
    }
}
