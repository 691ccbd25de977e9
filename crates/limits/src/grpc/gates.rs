//! `tidegate.limits.v1.Gates`: enter, exit, renew and state, as `/v1/gates` answers them.

use std::time::Duration;

use gate::gate::{By, Exit, Outcome as Reported};
use tenancy::scope::Scope;
use tonic::{Request, Response, Status, async_trait};

use super::{
    Doors, policy,
    proto::tidegate::limits::v1::{
        EnterRequest, EnterResponse, ExitRequest, ExitResponse, Outcome, PolicySource, RenewRequest, RenewResponse,
        StateRequest, StateResponse, enter_response, gates_server, state_response,
    },
    status::{invalid, status},
};
use crate::gates::{Entered, Gates, Source, milliseconds, why_not};

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
        let entered = self.gates.enter(&caller.tenant, &target, cost.max(1), policy.as_ref()).await.map_err(status)?;
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
        let exit = self.gates.exit(&caller.tenant, &target, &pass, outcome, latency).await.map_err(status)?;
        let detail = why_not(exit).unwrap_or_default().to_owned();
        Ok(Response::new(ExitResponse { counted: exit == Exit::Counted, detail }))
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Result<Response<RenewResponse>, Status> {
        let caller = self.doors.may_check(request.metadata().as_ref()).await?;
        let RenewRequest { target, pass } = request.into_inner();
        let lease = self.gates.renew(&caller.tenant, &target, &pass).await.map_err(status)?;
        Ok(Response::new(RenewResponse { renewed: lease.is_some(), lease_ms: lease.map_or(0, milliseconds) }))
    }

    async fn state(&self, request: Request<StateRequest>) -> Result<Response<StateResponse>, Status> {
        let caller = self.doors.may(request.metadata().as_ref(), Scope::LimitsRead).await?;
        let state = self.gates.state(&caller.tenant, &request.into_inner().target).await.map_err(status)?;
        Ok(Response::new(StateResponse {
            policy: source(state.source).into(),
            circuit: state.circuit.map(|circuit| state_response::Circuit {
                state: circuit.state.name().to_owned(),
                failures: circuit.failures,
                probes: circuit.probes,
                trips: circuit.trips,
                retry_after_ms: milliseconds(circuit.retry_after),
            }),
            held: state.held,
            rate: state.rate.map(|rate| state_response::Rate {
                limit: rate.limit,
                remaining: rate.remaining,
                reset_after_ms: milliseconds(rate.reset_after),
            }),
            degraded: state.degraded,
        }))
    }
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
