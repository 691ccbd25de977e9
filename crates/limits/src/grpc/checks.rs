//! `tidegate.limits.v1.Limits`: checks by rule, as `/v1/limits/check` answers them.

use tonic::{Request, Response, Status, async_trait, codegen::http::HeaderMap};

use super::{
    Doors,
    proto::tidegate::limits::v1::{
        CheckBatchRequest, CheckBatchResponse, CheckRequest, CheckResponse, limits_server::Limits,
    },
    status::{invalid, status},
};
use crate::{
    engine::{Answer, Ask, Engine},
    gates::milliseconds,
};

/// Keys of one batch.
const MOST_CHECKS: usize = 1_000;

pub(super) struct Checks {
    pub(super) doors: Doors,
    pub(super) engine: Engine,
}

impl Checks {
    pub(super) async fn decide(&self, headers: &HeaderMap, request: CheckRequest) -> Result<CheckResponse, Status> {
        let caller = self.doors.may_check(headers).await?;
        let answer = match request.peek {
            true => self.engine.peek(&caller.tenant, ask(&request)).await,
            false => self.engine.check(&caller.tenant, ask(&request)).await,
        }
        .map_err(status)?;
        self.doors.count(answer.is_allowed());
        Ok(wire(&answer))
    }
}

#[async_trait]
impl Limits for Checks {
    async fn check(&self, request: Request<CheckRequest>) -> Result<Response<CheckResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        self.decide(metadata.as_ref(), request).await.map(Response::new)
    }

    async fn check_batch(&self, request: Request<CheckBatchRequest>) -> Result<Response<CheckBatchResponse>, Status> {
        let caller = self.doors.may_check(request.metadata().as_ref()).await?;
        let CheckBatchRequest { checks, atomic } = request.into_inner();
        if checks.is_empty() || checks.len() > MOST_CHECKS {
            return Err(invalid("checks", format!("a batch has 1 to {MOST_CHECKS} checks")));
        }
        if let Some(index) = checks.iter().position(|check| check.peek) {
            return Err(invalid(format!("checks[{index}].peek"), "a batch counts; peek with Check"));
        }
        let asks: Vec<Ask<'_>> = checks.iter().map(ask).collect();
        let answers = match atomic {
            true => self.engine.check_all(&caller.tenant, &asks).await,
            false => self.engine.check_each(&caller.tenant, &asks).await,
        }
        .map_err(status)?;
        let allowed = answers.iter().all(Answer::is_allowed);
        self.doors.count(allowed);
        Ok(Response::new(CheckBatchResponse { allowed, results: answers.iter().map(wire).collect() }))
    }
}

fn ask(check: &CheckRequest) -> Ask<'_> {
    Ask { key: &check.key, cost: check.cost }
}

fn wire(answer: &Answer) -> CheckResponse {
    let decision = &answer.decision;
    CheckResponse {
        allowed: answer.is_allowed(),
        limit: decision.limit,
        remaining: decision.remaining,
        retry_after_ms: if answer.is_allowed() { 0 } else { decision.retry_after().map_or(0, milliseconds) },
        reset_after_ms: milliseconds(decision.reset_after),
        rule: answer.rule.name.as_ref().to_owned(),
        degraded: decision.degraded,
        shadow_denied: answer.is_shadow_denied(),
    }
}
