//! `/v1/limits/reserve` and `/v1/limits/settle`: take a cost now, say later what it really was.

use std::{borrow::Cow, time::Duration};

use axum::{extract::State, http::StatusCode, response::Response};
use gate::limiter::hold::Outcome;
use platform::{config::Span, http::Json, problem::Problem};
use serde::{Deserialize, Serialize};
use tenancy::{door::Caller, scope::Scope};
use utoipa::ToSchema;

use super::{
    answer::{self, CheckOut, milliseconds},
    question::{CheckQuery, Question},
};
use crate::{Limits, engine::Ask};

const DEFAULT_LENGTH: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(3_600);

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReserveIn<'a> {
    #[serde(borrow)]
    #[schema(value_type = String, example = "tokens:acme")]
    key: Cow<'a, str>,
    /// The most that it may cost.
    #[schema(example = 4000, minimum = 1)]
    cost: Option<u64>,
    /// If it is not settled by then, it is given back. 1 minute if absent, at most an hour.
    #[schema(value_type = Option<String>, example = "60s")]
    expires_in: Option<Span>,
}

/// As a check answers, and what to settle.
#[derive(Serialize, ToSchema)]
pub(super) struct ReserveOut {
    #[serde(flatten)]
    decision: CheckOut,
    /// For `settle`; absent if it was refused.
    #[schema(value_type = String, required = false, example = "rsv_s018f2b1c9d7e7a4b8c3d2e1f0a9b8c7dYWNtZQ")]
    id: Option<String>,
    /// Absent if it was refused.
    #[schema(value_type = u64, required = false, example = 60_000)]
    expires_in_ms: Option<u64>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SettleIn {
    id: String,
    /// What it really cost; 0 gives everything back, more than was reserved is charged too.
    #[schema(example = 1234, maximum = 4_294_967_296_u64)]
    cost: Option<u64>,
    /// `cancel` is a cost of 0.
    outcome: Option<SettleAs>,
}

#[derive(Deserialize, ToSchema, PartialEq)]
#[serde(rename_all = "lowercase")]
enum SettleAs {
    Commit,
    Cancel,
}

#[derive(Serialize, ToSchema)]
pub(super) struct SettleOut {
    /// `settled`; `again` if it was settled before and nothing changed; `late` if it had ended and was charged now.
    #[schema(example = "settled")]
    outcome: &'static str,
    /// What is charged in the end; 0 of what a shadow rule would have refused.
    #[schema(example = 1234)]
    cost: u64,
    remaining: u64,
    reset_after_ms: u64,
}

/// Take a cost now and settle it later
///
/// A reservation that nobody settles is given back by itself within a second of its end, whichever replica dies.
#[utoipa::path(post, path = "/v1/limits/reserve", tag = "limits", request_body = ReserveIn, params(CheckQuery), responses(
    (status = 200, body = ReserveOut), (status = 404, description = "no rule speaks for the key", body = Problem), (status = 422, body = Problem),
    (status = 429, description = "refused, with on_deny=429", body = ReserveOut)))]
pub(super) async fn reserve(State(limits): State<Limits>, question: Question) -> Result<Response, Problem> {
    let ReserveIn { key, cost, expires_in } = question.read()?;
    let lasts = expires_in.unwrap_or(Span(DEFAULT_LENGTH));
    let lasts = lasts.within("expires_in", Duration::from_secs(1), LONGEST);
    let lasts = lasts.map_err(|wrong| Problem::invalid(wrong.key, wrong.problem))?;
    let reserved = limits.engine().reserve(&question.tenant, Ask { key: &key, cost }, lasts).await?;
    Ok(answer::respond_reserved(&reserved, lasts, question.denied))
}

/// Say what a reservation really cost
#[utoipa::path(post, path = "/v1/limits/settle", tag = "limits", request_body = SettleIn, responses(
    (status = 200, body = SettleOut), (status = 404, description = "no such reservation", body = Problem), (status = 422, body = Problem), (status = 503, description = "Redis does not answer", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn settle(
    State(limits): State<Limits>,
    caller: Caller,
    Json(SettleIn { id, cost, outcome }): Json<SettleIn>,
) -> Result<Json<SettleOut>, Problem> {
    caller.require(Scope::LimitsCheck)?;
    let cost = match (cost, outcome) {
        (None | Some(0), Some(SettleAs::Cancel)) => 0,
        (Some(cost), None | Some(SettleAs::Commit)) => cost,
        (Some(_), Some(SettleAs::Cancel)) => {
            return Err(Problem::invalid("cost", "who cancels pays nothing: leave the cost out"));
        }
        (None, _) => return Err(Problem::invalid("cost", "say what it cost, or \"outcome\": \"cancel\"")),
    };
    let settlement = limits.engine().settle(&caller.tenant, &id, cost).await?;
    let outcome = match settlement.outcome {
        Outcome::Settled => "settled",
        Outcome::Again => "again",
        Outcome::Late => "late",
        Outcome::Unknown | Outcome::Unavailable => {
            return Err(Problem::new(StatusCode::NOT_FOUND, "no_reservation", "there is no such reservation"));
        }
    };
    Ok(Json(SettleOut {
        outcome,
        cost: settlement.cost,
        remaining: settlement.remaining,
        reset_after_ms: milliseconds(settlement.reset_after),
    }))
}
