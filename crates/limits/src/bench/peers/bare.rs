//! The bare tonic handler: it reads the same request, answers the same bytes and decides nothing. What is left of its speed is
//! what deciding costs.

use std::net::SocketAddr;

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
        }))
    }
}

/// Serves until the process ends.
pub async fn serve(addr: SocketAddr) -> Result<(), tonic::transport::Error> {
    Server::builder().tcp_nodelay(true).add_service(RateLimitServiceServer::new(Fixed)).serve(addr).await
}
