//! What check, peek, batch and reserve have in common: who asks, how a refusal is answered, and a body read without a copy.

use std::sync::Arc;

use axum::{
    extract::{FromRequest, FromRequestParts, Request},
    http::StatusCode,
};
use bytes::Bytes;
use platform::{
    http::{JsonText, Query, is_object, parse_json},
    problem::Problem,
};
use serde::Deserialize;
use tenancy::{door::Caller, scope::Scope};
use utoipa::IntoParams;

use crate::Limits;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct CheckQuery {
    /// The status of a refusal: 200 (the default: a refusal is an answer), or 429 for proxies that look only at it.
    #[param(value_type = Option<u16>, example = 429)]
    on_deny: Option<String>,
}

impl CheckQuery {
    fn denied(&self) -> Result<StatusCode, Problem> {
        match self.on_deny.as_deref() {
            None | Some("200") => Ok(StatusCode::OK),
            Some("429") => Ok(StatusCode::TOO_MANY_REQUESTS),
            Some(_) => Err(Problem::invalid("on_deny", "on_deny is 200 or 429")),
        }
    }
}

/// A question of somebody who may ask.
pub(super) struct Question {
    pub(super) tenant: Arc<str>,
    /// The status of a refusal.
    pub(super) denied: StatusCode,
    body: Bytes,
}

impl Question {
    /// The body without a copy; what is wrong with it is found by reading it again, slowly.
    pub(super) fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Problem> {
        match is_object(&self.body) {
            true => serde_json::from_slice(&self.body).or_else(|_| parse_json(&self.body)),
            false => parse_json(&self.body),
        }
    }
}

impl FromRequest<Limits> for Question {
    type Rejection = Problem;

    async fn from_request(request: Request, limits: &Limits) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        let caller = Caller::from_request_parts(&mut parts, limits).await?;
        caller.require(Scope::LimitsCheck)?;
        let Query(query) = Query::<CheckQuery>::from_request_parts(&mut parts, limits).await?;
        let denied = query.denied()?;
        let JsonText(body) = JsonText::from_request(Request::from_parts(parts, body), limits).await?;
        Ok(Question { tenant: caller.tenant, denied, body })
    }
}
