//! `tidegate.limits.v1.Gates`: enter, exit, renew, state, list, policies and orders by hand, as `/v1/gates` has them.

use std::time::Duration;

use gate::{
    breaker::Force,
    gate::{By, Exit, Outcome as Reported},
};
use platform::{
    config::Invalid,
    http::{Page, PageQuery},
};
use tenancy::{door::Caller, scope::Scope};
use time::OffsetDateTime;
use tonic::{Request, Response, Status, async_trait};

use super::{
    Doors, policy,
    proto::tidegate::limits::v1::{
        DeletePolicyRequest, DeletePolicyResponse, EnterRequest, EnterResponse, ExitRequest, ExitResponse, ListRequest,
        ListResponse, Outcome, OverrideState, PolicySource, PutOverrideRequest, PutPolicyRequest, RenewRequest,
        RenewResponse, StateRequest, StateResponse, enter_response, gates_server, list_response, state_response,
    },
    status::{invalid, status},
};
use crate::gates::{Entered, Error, Gates, Source, milliseconds, why_not};

/// Fields that are durations over HTTP and milliseconds here.
const TIMES: [&str; 6] = ["window", "lease", "slow_call", "open", "open_cap", "for"];

pub(super) struct GateService {
    pub(super) doors: Doors,
    pub(super) gates: Gates,
}

#[async_trait]
impl gates_server::Gates for GateService {
    async fn enter(&self, request: Request<EnterRequest>) -> Result<Response<EnterResponse>, Status> {
        let caller = self.doors.may_check(request.metadata().as_ref()).await?;
        let EnterRequest { target, cost, policy } = request.into_inner();
        let policy = policy.map(policy::read).transpose()?;
        let entered = self.gates.enter(&caller.tenant, &target, cost.max(1), policy.as_ref()).await.map_err(wrong)?;
        Ok(Response::new(entered_on_the_wire(entered)))
    }

    async fn exit(&self, request: Request<ExitRequest>) -> Result<Response<ExitResponse>, Status> {
        let caller = self.doors.may_check(request.metadata().as_ref()).await?;
        let ExitRequest { target, pass, outcome, latency_ms } = request.into_inner();
        let outcome = match Outcome::try_from(outcome) {
            Ok(Outcome::Success) => Reported::Success,
            Ok(Outcome::Failure) => Reported::Failure,
            Ok(Outcome::Ignored) => Reported::Ignored,
            Ok(Outcome::Unspecified) | Err(_) => {
                return Err(invalid("outcome", "write OUTCOME_SUCCESS, OUTCOME_FAILURE or OUTCOME_IGNORED"));
            }
        };
        let latency = Duration::from_millis(latency_ms);
        let exit = self.gates.exit(&caller.tenant, &target, &pass, outcome, latency).await.map_err(wrong)?;
        let detail = why_not(exit).unwrap_or_default().to_owned();
        Ok(Response::new(ExitResponse { counted: exit == Exit::Counted, detail }))
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Result<Response<RenewResponse>, Status> {
        let caller = self.doors.may_check(request.metadata().as_ref()).await?;
        let RenewRequest { target, pass } = request.into_inner();
        let lease = self.gates.renew(&caller.tenant, &target, &pass).await.map_err(wrong)?;
        Ok(Response::new(RenewResponse { renewed: lease.is_some(), lease_ms: lease.map_or(0, milliseconds) }))
    }

    async fn state(&self, request: Request<StateRequest>) -> Result<Response<StateResponse>, Status> {
        let caller = self.doors.may(request.metadata().as_ref(), Scope::LimitsRead).await?;
        self.shown(&caller, &request.into_inner().target).await
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        let caller = self.doors.may(request.metadata().as_ref(), Scope::LimitsRead).await?;
        let ListRequest { limit, after } = request.into_inner();
        let page = PageQuery { limit, after: Some(after).filter(|after| !after.is_empty()) };
        let Page { data, next } = self.gates.list(&caller.tenant, &page).await.map_err(status)?;
        let gates = data.into_iter().map(|row| list_response::Gate {
            target: row.target,
            policy: row.policy.as_ref().map(policy::show),
            created_at: Some(timestamp(row.created_at)),
            used_at: Some(timestamp(row.used_at)),
        });
        Ok(Response::new(ListResponse { gates: gates.collect(), next: next.unwrap_or_default() }))
    }

    async fn put_policy(&self, request: Request<PutPolicyRequest>) -> Result<Response<StateResponse>, Status> {
        let caller = self.doors.may(request.metadata().as_ref(), Scope::LimitsWrite).await?;
        let PutPolicyRequest { target, policy } = request.into_inner();
        let policy = policy.ok_or_else(|| invalid("policy", "write one; DeletePolicy takes it away"))?;
        let policy = policy::read(policy)?;
        // What is wrong is said with the name that the field has in this message.
        policy.check("policy.").map_err(|invalid| wrong(invalid.into()))?;
        self.gates.put_policy(&caller.actor, &caller.tenant, &target, &policy).await.map_err(wrong)?;
        self.shown(&caller, &target).await
    }

    async fn delete_policy(
        &self,
        request: Request<DeletePolicyRequest>,
    ) -> Result<Response<DeletePolicyResponse>, Status> {
        let caller = self.doors.may(request.metadata().as_ref(), Scope::LimitsWrite).await?;
        let target = request.into_inner().target;
        self.gates.take_policy(&caller.actor, &caller.tenant, &target).await.map_err(wrong)?;
        Ok(Response::new(DeletePolicyResponse {}))
    }

    async fn put_override(&self, request: Request<PutOverrideRequest>) -> Result<Response<StateResponse>, Status> {
        let caller = self.doors.may(request.metadata().as_ref(), Scope::LimitsWrite).await?;
        let PutOverrideRequest { target, state, for_ms } = request.into_inner();
        let force = match OverrideState::try_from(state) {
            Ok(OverrideState::Open) => Some(Force::Open),
            Ok(OverrideState::Closed) => Some(Force::Closed),
            Ok(OverrideState::Automatic) => None,
            Ok(OverrideState::Unspecified) | Err(_) => {
                let known = "write OVERRIDE_STATE_OPEN, OVERRIDE_STATE_CLOSED or OVERRIDE_STATE_AUTOMATIC";
                return Err(invalid("state", known));
            }
        };
        let lasting = for_ms.map(Duration::from_millis);
        self.gates.order(&caller.actor, &caller.tenant, &target, force, lasting).await.map_err(wrong)?;
        self.shown(&caller, &target).await
    }
}

impl GateService {
    async fn shown(&self, caller: &Caller, target: &str) -> Result<Response<StateResponse>, Status> {
        let state = self.gates.state(&caller.tenant, target).await.map_err(wrong)?;
        Ok(Response::new(StateResponse {
            policy: source(state.source).into(),
            circuit: state.circuit.map(|circuit| state_response::Circuit {
                state: circuit.state.name().to_owned(),
                failures: circuit.failures,
                probes: circuit.probes,
                trips: circuit.trips,
                retry_after_ms: milliseconds(circuit.retry_after),
                window_calls: circuit.counts.calls,
                window_failures: circuit.counts.failures,
                window_slow: circuit.counts.slow,
            }),
            held: state.held,
            rate: state.rate.map(|rate| state_response::Rate {
                limit: rate.limit,
                remaining: rate.remaining,
                reset_after_ms: milliseconds(rate.reset_after),
            }),
            degraded: state.degraded,
            policy_in_force: Some(policy::show(&state.policy.written)),
        }))
    }
}

/// The status of a mistake, with the field's name in these messages.
fn wrong(error: Error) -> Status {
    match error {
        Error::Invalid(Invalid { key, problem }) if TIMES.contains(&key.rsplit('.').next().unwrap_or_default()) => {
            invalid(format!("{key}_ms"), problem)
        }
        error => status(error),
    }
}

fn timestamp(time: OffsetDateTime) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: time.unix_timestamp(), nanos: i32::try_from(time.nanosecond()).unwrap_or(0) }
}

fn entered_on_the_wire(entered: Entered) -> EnterResponse {
    let (answer, policy, degraded) = match entered {
        Entered::Pass { pass, lease, is_probe, rate, source, degraded } => {
            let pass = enter_response::Pass {
                pass,
                lease_ms: milliseconds(lease),
                probe: is_probe,
                rate_remaining: rate.map(|rate| rate.remaining),
            };
            (enter_response::Answer::Pass(pass), source, degraded)
        }
        Entered::Refused { refused, source } => {
            let by = match refused.by {
                By::Rate => enter_response::By::Rate,
                By::Circuit => enter_response::By::Circuit,
                By::Concurrency => enter_response::By::Concurrency,
            };
            let retry_after_ms = refused.retry_after.map(milliseconds);
            let answer = enter_response::Refused { by: by.into(), retry_after_ms };
            (enter_response::Answer::Refused(answer), source, refused.degraded)
        }
    };
    EnterResponse { answer: Some(answer), policy: source(policy).into(), degraded }
}

fn source(source: Source) -> PolicySource {
    match source {
        Source::Stored => PolicySource::Stored,
        Source::Given => PolicySource::Given,
        Source::Default => PolicySource::Default,
    }
}
