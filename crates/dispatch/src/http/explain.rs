//! `/v1/events/explain`: who would receive an event, and why not the others.

use axum::{body::Body, extract::State, http::HeaderMap};
use platform::{
    http::{Json, require_json},
    id,
    problem::Problem,
};
use serde::Serialize;
use tenancy::{door::Caller, scope::Scope};
use utoipa::ToSchema;

use super::events::read;
use crate::{
    Dispatch,
    delivery::{Document, Matcher, event_type::Glob},
    intake::EventIn,
    operational,
};

/// Who would receive an event, and why not the others.
#[derive(Serialize, ToSchema)]
pub(super) struct Explanation {
    subscription_id: String,
    would_receive: bool,
    /// What decided it.
    reason: String,
}

/// Who would receive this event?
///
/// Sends and stores nothing, and refuses what could not be sent in. With the source `tidegate` it tells who would hear of an event of
/// Tidegate's own.
#[utoipa::path(post, path = "/v1/events/explain", tag = "events", request_body = EventIn, responses((status = 200, body = Vec<Explanation>)))]
pub(super) async fn explain(
    State(dispatch): State<Dispatch>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Vec<Explanation>>, Problem> {
    caller.require(Scope::DispatchRead)?;
    require_json(&headers)?;
    let (body, _held) = read(&dispatch, &caller.tenant, body).await?;
    let (event, event_type) = dispatch.intake().read_to_explain(&body)?;
    // As it would be sent in.
    let id = event.id.unwrap_or_else(|| id::new("evt"));
    let document = Document::new(&id, event_type.as_str(), event.data.get())
        .with_source(event.source.as_deref())
        .with_ordering_key(event.ordering_key.as_deref());
    // One of Tidegate's own goes only to those who name it.
    let is_operational = event.source.as_deref() == Some(operational::SOURCE);
    let first_match = |matcher: &Matcher| -> Option<Glob> {
        let found = if is_operational { matcher.first_naming(&event_type) } else { matcher.first_match(&event_type) };
        found.cloned()
    };
    let mut answers: Vec<Explanation> = Vec::new();
    for endpoint in dispatch.catalog().all(&caller.tenant) {
        let reason = if !endpoint.takes_events {
            Err("it is disabled".to_owned())
        } else if let Some(glob) = first_match(&endpoint.matcher) {
            match endpoint.filter.as_ref().and_then(|filter| filter.explain(&document).into_iter().next()) {
                Some(mismatch) => Err(format!("its filter asks {}, but {}", mismatch.condition, mismatch.reason)),
                None if !endpoint.enabled => {
                    Ok(format!("{:?} matches; it is paused, so the event waits for it", glob.as_str()))
                }
                None if endpoint.reach.is_none() => Ok(format!(
                    "{:?} matches; this replica cannot use it, as its log says, so the event waits for one that can",
                    glob.as_str()
                )),
                None => Ok(format!("{:?} matches", glob.as_str())),
            }
        } else {
            Err(format!("none of its event types matches {:?}", event_type.as_str()))
        };
        let would_receive = reason.is_ok();
        let reason = reason.unwrap_or_else(|why_not| why_not);
        answers.push(Explanation { subscription_id: endpoint.id.to_string(), would_receive, reason });
    }
    for id in dispatch.catalog().unreadable(&caller.tenant) {
        let reason = "another version wrote it, and this replica cannot read it, as its log says".to_owned();
        answers.push(Explanation { subscription_id: id.into(), would_receive: false, reason });
    }
    answers.sort_by(|a, b| (!a.would_receive, &a.subscription_id).cmp(&(!b.would_receive, &b.subscription_id)));
    Ok(Json(answers))
}
