//! `application/problem+json` (RFC 9457): the one shape of an error on the wire.
//!
//! `code` is stable and for programs; `detail` is a sentence for people and says what to do; `field` names the part of
//! the request that is wrong. An internal error never carries its cause to the caller: that goes to the log.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

/// An answer that says what went wrong and what to do about it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Problem {
    /// Always `about:blank`; `code` tells the kinds apart.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The HTTP status in words.
    title: &'static str,
    #[serde(serialize_with = "status_number")]
    #[schema(value_type = u16, example = 400)]
    status: StatusCode,
    /// Stable name of the mistake, for programs.
    #[schema(example = "invalid_request")]
    code: &'static str,
    /// What is wrong and how to mend it, for people.
    detail: String,
    /// The part of the request that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    #[serde(skip)]
    retry_after_s: Option<u32>,
}

impl Problem {
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Problem {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status,
            code,
            detail: detail.into(),
            field: None,
            retry_after_s: None,
        }
    }

    pub fn invalid(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_field", detail).field(field)
    }

    pub fn not_found(what: &str, id: &str) -> Self {
        Problem::new(StatusCode::NOT_FOUND, "not_found", format!("there is no {what} {id:?}"))
    }

    pub fn conflict(code: &'static str, detail: impl Into<String>) -> Self {
        Problem::new(StatusCode::CONFLICT, code, detail)
    }

    /// This replica cannot answer now; the caller may try again after so many seconds.
    pub fn unavailable(code: &'static str, detail: impl Into<String>, retry_after_s: u32) -> Self {
        Problem { retry_after_s: Some(retry_after_s), ..Problem::new(StatusCode::SERVICE_UNAVAILABLE, code, detail) }
    }

    /// A fault of ours. The cause is logged here and kept from the caller.
    pub fn internal(error: &(dyn std::error::Error + 'static)) -> Self {
        tracing::error!(error = %Chain(error), "A request failed.");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "something went wrong here; the log has the cause")
    }

    #[must_use]
    pub fn field(self, field: impl Into<String>) -> Self {
        Problem { field: Some(field.into()), ..self }
    }

    pub fn status(&self) -> StatusCode {
        self.status
    }

    pub fn code(&self) -> &'static str {
        self.code
    }

    /// Seconds after which it may be gone.
    pub fn retry_after(&self) -> Option<u32> {
        self.retry_after_s
    }

    /// What is wrong and the fix, for protocols that word errors in their own way.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The part of the request that is wrong.
    pub fn wrong_field(&self) -> Option<&str> {
        self.field.as_deref()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"tidegate\""));
        }
        response
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn status_number<S: serde::Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}

/// An error and what caused it, on one line.
pub struct Chain<'a>(pub &'a (dyn std::error::Error + 'static));

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
