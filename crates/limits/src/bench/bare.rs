//! The bare handlers of axum and tonic: they read the same request, answer the same bytes and decide nothing. What is left of
//! their speed is what deciding costs.

use std::{io, net::SocketAddr};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{self, HeaderName},
    routing::post,
    serve::ListenerExt as _,
};
use tokio::net::TcpListener;
use tonic::{Request, Response, Status, async_trait, transport::Server};

use crate::grpc::wire::envoy::{
    config::core::v3::HeaderValue,
    service::ratelimit::v3::{
        RateLimitRequest, RateLimitResponse,
        rate_limit_response::{Code, DescriptorStatus, RateLimit, rate_limit::Unit},
        rate_limit_service_server::{RateLimitService, RateLimitServiceServer},
    },
};

struct Fixed;

#[async_trait]
impl RateLimitService for Fixed {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let descriptors = request.into_inner().descriptors.len();
        let header = |key: &str, value: &str| HeaderValue {
            key: key.to_owned(),
            value: value.to_owned(),
            raw_value: Vec::new(),
        };
        let current_limit =
            Some(RateLimit { requests_per_unit: 1_000_000, unit: Unit::Second.into(), name: String::new() });
        let status = DescriptorStatus {
            code: Code::Ok.into(),
            current_limit,
            limit_remaining: 999_999,
            duration_until_reset: Some(prost_types::Duration { seconds: 0, nanos: 1_000 }),
        };
        Ok(Response::new(RateLimitResponse {
            overall_code: Code::Ok.into(),
            statuses: vec![status; descriptors],
            response_headers_to_add: vec![
                header("ratelimit-policy", "\"bench.user\";q=1000000;w=1"),
                header("ratelimit", "\"bench.user\";r=999999;t=1"),
                header("x-ratelimit-limit", "1000000"),
                header("x-ratelimit-remaining", "999999"),
                header("x-ratelimit-reset", "1"),
            ],
            dynamic_metadata: None,
        }))
    }
}

/// Reads the body and answers as a check does.
async fn same_bytes(_: Bytes) -> http::Response<Body> {
    const BODY: &str = "{\"allowed\":true,\"limit\":1000000,\"remaining\":999999,\"retry_after_ms\":0,\"reset_after_ms\":1,\"rule\":\"*\",\"degraded\":false}";
    const HEADERS: [(&str, &str); 6] = [
        ("content-type", "application/json"),
        ("ratelimit-policy", "\"*\";q=1000000;w=1"),
        ("ratelimit", "\"*\";r=999999;t=1"),
        ("x-ratelimit-limit", "1000000"),
        ("x-ratelimit-remaining", "999999"),
        ("x-ratelimit-reset", "1"),
    ];
    let mut response = http::Response::new(Body::from(BODY));
    response.headers_mut().reserve(HEADERS.len());
    for (name, value) in HEADERS {
        response.headers_mut().insert(HeaderName::from_static(name), http::HeaderValue::from_static(value));
    }
    response
}

/// Serves both until the process ends.
pub async fn serve(http: SocketAddr, grpc: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(http).await?.tap_io(|stream| drop(stream.set_nodelay(true)));
    let router = Router::new().route("/v1/limits/check", post(same_bytes));
    let tonic = Server::builder().tcp_nodelay(true).add_service(RateLimitServiceServer::new(Fixed)).serve(grpc);
    tokio::try_join!(axum::serve(listener, router), async { tonic.await.map_err(io::Error::other) }).map(drop)
}
