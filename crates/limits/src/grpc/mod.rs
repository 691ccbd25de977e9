//! gRPC: Envoy's rate-limit service, our own for checks and gates, health and reflection.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`rls`], [`headers`] | `envoy.service.ratelimit.v3` |
//! | [`checks`], [`gates`], [`policy`] | `tidegate.limits.v1` |
//! | [`services`], [`unary`] | which service a call is for, and calls of one message |
//! | [`guard`] | what every call passes: a bound on calls under way, a deadline, the panic barrier |
//! | [`status`] | mistakes in gRPC's own form |
//!
//! The key comes as metadata (`authorization` or `x-api-key`) and says the tenant. Health and reflection need none.

mod checks;
mod gates;
mod guard;
mod headers;
mod policy;
mod proto;
mod rls;
mod services;
mod status;
mod unary;

/// The messages, for clients of our own.
#[cfg(feature = "bench")]
pub(crate) mod wire {
    pub(crate) use super::proto::{envoy, tidegate};
}

use std::{sync::Arc, time::Duration};

use ::metrics::Counter;
use platform::{
    http_server::{self, Limits},
    shutdown::Tasks,
};
use tenancy::{
    door::{Caller, Door},
    scope::Scope,
};
use tokio::net::TcpListener;
use tonic::{Status, codegen::http::HeaderMap, service::Routes};
use tonic_health::{ServingStatus, server::HealthReporter};

use self::{
    checks::Checks,
    gates::GateService,
    guard::Guard,
    rls::Rls,
    services::{GATES, GatesServer, LIMITS, LimitsServer, RLS, RateLimitServiceServer, Served, Services},
    status::status,
};
use crate::{engine::Engine, gates::Gates, metrics::DECISIONS};

/// Of one message. A request is a few hundred bytes.
const LONGEST_MESSAGE: usize = 256 * 1024;
/// What health answers for: the server as a whole, and each service.
const SERVICES: [&str; 4] = ["", RLS, LIMITS, GATES];

/// What the services stand on.
pub struct Parts {
    pub door: Door,
    pub engine: Engine,
    pub gates: Gates,
}

/// Serves until shutdown, then drains.
pub async fn serve(listener: TcpListener, parts: Parts, limits: Limits, tasks: Tasks) {
    let services = services(parts, limits.request_timeout, &tasks).await;
    http_server::serve("grpc", listener, services, limits, tasks).await;
}

async fn services(parts: Parts, deadline: Duration, tasks: &Tasks) -> Services {
    let Parts { door, engine, gates } = parts;
    let doors = Doors::new(door);
    let (reporter, health) = tonic_health::server::health_reporter();
    for service in SERVICES {
        reporter.set_service_status(service, ServingStatus::Serving).await;
    }
    tell_of_the_end(reporter, tasks);
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    // Python's own client still asks the older version.
    let (v1, v1alpha) = (reflection().build_v1(), reflection().build_v1alpha());
    let known = "the descriptors were compiled by build.rs";
    let rls = Arc::new(Rls { doors: doors.clone(), engine: engine.clone() });
    let checks = Arc::new(Checks { doors: doors.clone(), engine });
    let gates = GatesServer::new(GateService { doors, gates });
    let others = Routes::new(health.max_decoding_message_size(LONGEST_MESSAGE))
        .add_service(v1.expect(known).max_decoding_message_size(LONGEST_MESSAGE))
        .add_service(v1alpha.expect(known).max_decoding_message_size(LONGEST_MESSAGE))
        .into_axum_router();
    Services(Arc::new(Served {
        guard: Guard::new(deadline),
        rls_server: RateLimitServiceServer::from_arc(rls.clone()).max_decoding_message_size(LONGEST_MESSAGE),
        rls,
        checks_server: LimitsServer::from_arc(checks.clone()).max_decoding_message_size(LONGEST_MESSAGE),
        checks,
        gates: gates.max_decoding_message_size(LONGEST_MESSAGE),
        others,
    }))
}

/// Not serving from the first sign of shutdown; when the listener closes, watches end, so that nobody waits for them.
fn tell_of_the_end(reporter: HealthReporter, tasks: &Tasks) {
    let (leaving, stopping) = (tasks.leaving().clone(), tasks.stopping().clone());
    tasks.spawn("grpc health", async move {
        leaving.cancelled().await;
        for service in SERVICES {
            reporter.set_service_status(service, ServingStatus::NotServing).await;
        }
        stopping.cancelled().await;
        let mut reporter = reporter;
        for service in SERVICES {
            reporter.clear_service_status(service).await;
        }
    });
}

/// Who is calling, and how many were let through.
#[derive(Clone)]
struct Doors {
    door: Door,
    allowed: Counter,
    denied: Counter,
}

impl Doors {
    fn new(door: Door) -> Doors {
        let counter = |result| ::metrics::counter!(DECISIONS, "door" => "grpc", "result" => result);
        Doors { door, allowed: counter("allowed"), denied: counter("denied") }
    }

    async fn may_check(&self, headers: &HeaderMap) -> Result<Caller, Status> {
        self.may(headers, Scope::LimitsCheck).await
    }

    async fn may(&self, headers: &HeaderMap, scope: Scope) -> Result<Caller, Status> {
        let caller = self.door.caller_by_headers(headers).await.map_err(status)?;
        caller.require(scope).map_err(status)?;
        Ok(caller)
    }

    fn count(&self, is_allowed: bool) {
        if is_allowed { &self.allowed } else { &self.denied }.increment(1);
    }
}
