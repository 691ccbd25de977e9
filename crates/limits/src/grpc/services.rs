//! Which service a call is for, by the first part of its path. Looked at by hand: a router's work is a tenth of a check's.

use std::{
    convert::Infallible,
    task::{Context, Poll},
};

use axum::{Router, body::HttpBody};
use tonic::{
    body::Body,
    codegen::{
        BoxFuture, Bytes, Service, StdError,
        http::{Request, Response},
    },
};

use super::{
    checks::Checks,
    gates::GateService,
    guard::Guard,
    proto::{
        envoy::service::ratelimit::v3::rate_limit_service_server::{RateLimitServiceServer, SERVICE_NAME as RLS},
        tidegate::limits::v1::{
            gates_server::{GatesServer, SERVICE_NAME as GATES},
            limits_server::{LimitsServer, SERVICE_NAME as LIMITS},
        },
    },
    rls::Rls,
};

pub(super) type Answering = BoxFuture<Response<Body>, Infallible>;

/// What the listener serves. Cheap to clone.
#[derive(Clone)]
pub(super) struct Services {
    pub(super) guard: Guard,
    pub(super) rls: RateLimitServiceServer<Rls>,
    pub(super) checks: LimitsServer<Checks>,
    pub(super) gates: GatesServer<GateService>,
    /// Health and reflection, and what says that there is nothing else.
    pub(super) others: Router,
}

impl<B> Service<Request<B>> for Services
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Answering {
        let Services { guard, rls, checks, gates, others } = self;
        let mut others = |request: Request<B>| -> Answering {
            let answering = others.call(request);
            Box::pin(async move { Ok(answering.await?.map(Body::new)) })
        };
        match request.uri().path().split('/').nth(1).unwrap_or_default() {
            RLS => guard.watch(request, |request| rls.call(request)),
            LIMITS => guard.watch(request, |request| checks.call(request)),
            GATES => guard.watch(request, |request| gates.call(request)),
            // Probes and tools ask these, also when too many calls are under way.
            name if name.starts_with("grpc.") => others(request),
            _ => guard.watch(request, others),
        }
    }
}
