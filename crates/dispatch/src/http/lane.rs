//! `POST /v1/events` with one event in the lane before the router: the same door, the same intake, the same words.
//!
//! A caller that may not, an array, lines of JSON and what is no JSON at all are left to the route.

use axum::http::StatusCode;
use platform::{
    crash::crash_point,
    http::is_json,
    http_server::{Plain, Reply},
};
use tenancy::{
    door::{Door, Shown},
    scope::Scope,
};

use super::events;
use crate::Dispatch;

/// Single events, as fast as they can be taken in.
pub struct EventLane {
    door: Door,
    dispatch: Dispatch,
}

impl EventLane {
    pub const ROUTE: &'static str = "/v1/events";

    pub fn new(door: &Door, dispatch: &Dispatch) -> Self {
        EventLane { door: door.clone(), dispatch: dispatch.clone() }
    }

    /// `None` if the route shall answer.
    pub async fn answer(&self, request: &Plain<'_>, reply: &mut Reply) -> Option<()> {
        let is_one = request.header("content-type").is_none_or(is_json) && !events::is_array(request.body());
        if request.target() != Self::ROUTE || !is_one || request.header("content-encoding").is_some() {
            return None;
        }
        let shown = Shown::read(|name, place| request.nth_header(name.as_str(), place));
        let caller = self.door.sender(&shown).await.ok()?;
        caller.require(Scope::DispatchWrite).ok()?;
        let intake = self.dispatch.intake();
        let accepted = async {
            let _held = intake.hold(&caller.tenant, request.body().len()).await?;
            intake.accept(&caller.tenant, request.body()).await
        };
        match accepted.await {
            Ok(event) => {
                crash_point("ack.before");
                reply.status = StatusCode::ACCEPTED;
                reply.header_lines.extend_from_slice(b"content-type: application/json\r\n");
                reply.body.extend_from_slice(&serde_json::to_vec(&event).ok()?);
            }
            Err(problem) => reply.problem(&problem),
        }
        Some(())
    }
}
