//! `POST /v1/limits/check` in the lane before the router: the same door, the same engine, the same words.
//!
//! Whatever would not be answered with a decision is left to the route, before anything is counted.

use axum::http::StatusCode;
use platform::{
    http::{is_json, is_object},
    http_server::{Plain, Reply},
};
use tenancy::{
    door::{Door, Shown},
    scope::Scope,
};

use super::{answer, check::CheckIn};
use crate::engine::{Ask, Engine};

/// Checks, as fast as they can be answered.
pub struct CheckLane {
    door: Door,
    engine: Engine,
}

impl CheckLane {
    pub const ROUTE: &'static str = "/v1/limits/check";

    pub fn new(door: &Door, engine: &Engine) -> Self {
        CheckLane { door: door.clone(), engine: engine.clone() }
    }

    /// `None` if the route shall answer.
    pub async fn answer(&self, request: &Plain<'_>, reply: &mut Reply) -> Option<()> {
        let denied = match request.target().strip_prefix(Self::ROUTE)? {
            "" => StatusCode::OK,
            "?on_deny=429" => StatusCode::TOO_MANY_REQUESTS,
            _ => return None,
        };
        if !request.header("content-type").is_none_or(is_json) || !is_object(request.body()) {
            return None;
        }
        let check: CheckIn<'_> = serde_json::from_slice(request.body()).ok()?;
        let shown = Shown::read(|name, place| request.nth_header(name.as_str(), place));
        let caller = self.door.sender(&shown).await.ok()?;
        caller.require(Scope::LimitsCheck).ok()?;
        let decided = self.engine.check(&caller.tenant, Ask::from(&check)).await.ok()?;
        answer::reply(reply, &decided, denied);
        Some(())
    }
}
