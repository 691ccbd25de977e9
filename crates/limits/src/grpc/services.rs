//! Which service a call is for, by the first part of its path. Looked at by hand: a router's work is a tenth of a check's.

use std::{
    convert::Infallible,
    future::ready,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{Router, body::HttpBody};
use tonic::{
    body::Body,
    codegen::{
        BoxFuture, Bytes, Service, StdError,
        http::{Request, Response, StatusCode, Version},
    },
};

pub(super) use super::proto::{
    envoy::service::ratelimit::v3::rate_limit_service_server::{RateLimitServiceServer, SERVICE_NAME as RLS},
    tidegate::limits::v1::{
        gates_server::{GatesServer, SERVICE_NAME as GATES},
        limits_server::{LimitsServer, SERVICE_NAME as LIMITS},
    },
};
use super::{
    checks::Checks,
    gates::GateService,
    guard::{Guard, refuse},
    rls::Rls,
    unary::{self, Asked},
};

pub(super) type Answering = BoxFuture<Response<Body>, Infallible>;

/// The two calls that are made most.
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const CHECK: &str = "/tidegate.limits.v1.Limits/Check";

/// What the listener serves. Cheap to clone, once for every call.
#[derive(Clone)]
pub(super) struct Services(pub(super) Arc<Served>);

pub(super) struct Served {
    pub(super) guard: Guard,
    pub(super) rls: Arc<Rls>,
    pub(super) rls_server: RateLimitServiceServer<Rls>,
    pub(super) checks: Arc<Checks>,
    pub(super) checks_server: LimitsServer<Checks>,
    pub(super) gates: GatesServer<GateService>,
    /// Health and reflection, and what says that there is nothing else.
    pub(super) others: Router,
}

impl<B> Service<Request<B>> for Services
where
    B: HttpBody<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Answering {
        // A web page can have its own name lead to this machine and then send what it likes, but not over plain HTTP/2.
        if request.version() != Version::HTTP_2 {
            return Box::pin(ready(Ok(refuse(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "send HTTP/2"))));
        }
        let served = Arc::clone(&self.0);
        let Served { guard, rls_server, checks_server, gates, others, .. } = &*self.0;
        let others = |request: Request<B>| -> Answering {
            let answering = others.clone().call(request);
            Box::pin(async move { Ok(answering.await?.map(Body::new)) })
        };
        let path = request.uri().path();
        match path.split('/').nth(1).unwrap_or_default() {
            // Boxed: the future of a decision is large, and would be moved three times on its way into the connection's task.
            RLS if path == SHOULD_RATE_LIMIT => {
                guard.watch(request, async move |request| match unary::read(request).await {
                    Asked::Message(headers, message) => {
                        Ok(unary::respond(Box::pin(served.rls.decide(&headers, message)).await))
                    }
                    Asked::Other(request) => served.rls_server.clone().call(request).await,
                })
            }
            LIMITS if path == CHECK => guard.watch(request, async move |request| match unary::read(request).await {
                Asked::Message(headers, message) => {
                    Ok(unary::respond(Box::pin(served.checks.decide(&headers, message)).await))
                }
                Asked::Other(request) => served.checks_server.clone().call(request).await,
            }),
            RLS => guard.watch(request, |request| rls_server.clone().call(request)),
            LIMITS => guard.watch(request, |request| checks_server.clone().call(request)),
            GATES => guard.watch(request, |request| gates.clone().call(request)),
            // Probes and tools ask these, also when too many calls are under way.
            name if name.starts_with("grpc.") => others(request),
            _ => guard.watch(request, others),
        }
    }
}
