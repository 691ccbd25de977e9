//! gRPC, 64 calls in flight: beside the bare tonic handler, beside throttlecrab-server, and on Redis beside the bare script.

use std::net::SocketAddr;

use gate::bench::Row;
use tonic::{
    Request,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

use super::{
    BenchError, Options, bare_script,
    load::{Contender, Load, Round, Side, compete, key},
    servers::{Bare, Ours, Throttlecrab},
};
use crate::grpc::wire::{
    envoy::{
        extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
        service::ratelimit::v3::{
            RateLimitRequest, rate_limit_response::Code, rate_limit_service_client::RateLimitServiceClient,
        },
    },
    tidegate::limits::v1::{CheckRequest, limits_client::LimitsClient},
};

const IN_FLIGHT: usize = 64;
const CONNECTIONS: usize = 8;
/// Twice what Envoy ratelimit did on Redis, 64 in flight, on two cores with its client beside it.
const WANTED_ON_REDIS: f64 = 2.0 * 13_200.0;

/// Calls go out over few connections, as a proxy's do.
async fn channels(addr: SocketAddr) -> Result<Vec<Channel>, BenchError> {
    let endpoint = Endpoint::from_shared(format!("http://{addr}"))?.tcp_nodelay(true);
    let mut channels = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        channels.push(endpoint.connect().await?);
    }
    Ok((0..IN_FLIGHT).map(|n| channels[n % CONNECTIONS].clone()).collect())
}

struct Envoy(RateLimitServiceClient<Channel>);

impl Load for Envoy {
    async fn round(&mut self, number: u64) -> Result<Round, BenchError> {
        let entry = Entry { key: "user".to_owned(), value: format!("user-{:07}", key(number)) };
        let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
        let request = RateLimitRequest { domain: "bench".to_owned(), descriptors: vec![descriptor], hits_addend: 1 };
        let answer = self.0.should_rate_limit(request).await?.into_inner();
        Ok(Round { asked: 1, admitted: u64::from(answer.overall_code() == Code::Ok) })
    }
}

/// Our own check: a key and a rule, as small as the peer's question.
struct Check(LimitsClient<Channel>);

impl Load for Check {
    async fn round(&mut self, number: u64) -> Result<Round, BenchError> {
        let request = CheckRequest { key: format!("user-{:07}", key(number)), ..CheckRequest::default() };
        let answer = self.0.check(request).await?.into_inner();
        Ok(Round { asked: 1, admitted: u64::from(answer.allowed) })
    }
}

/// throttlecrab-server's own protocol, as its documentation describes it.
#[derive(Clone, PartialEq, prost::Message)]
struct ThrottleRequest {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(int32, tag = "2")]
    max_burst: i32,
    #[prost(int32, tag = "3")]
    count_per_period: i32,
    #[prost(int32, tag = "4")]
    period: i32,
    #[prost(int32, tag = "5")]
    quantity: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ThrottleResponse {
    #[prost(bool, tag = "1")]
    allowed: bool,
}

struct Throttle(Grpc<Channel>);

impl Load for Throttle {
    async fn round(&mut self, number: u64) -> Result<Round, BenchError> {
        let request = ThrottleRequest {
            key: format!("user-{:07}", key(number)),
            max_burst: 1_000_000,
            count_per_period: 1_000_000,
            period: 1,
            quantity: 1,
        };
        self.0.ready().await?;
        let path = PathAndQuery::from_static("/throttlecrab.RateLimiter/Throttle");
        let codec = ProstCodec::<ThrottleRequest, ThrottleResponse>::default();
        let answer = self.0.unary(Request::new(request), path, codec).await?.into_inner();
        Ok(Round { asked: 1, admitted: u64::from(answer.allowed) })
    }
}

async fn envoys(addr: SocketAddr) -> Result<Side<Envoy>, BenchError> {
    Ok(Side::new(
        channels(addr).await?.into_iter().map(|channel| Envoy(RateLimitServiceClient::new(channel))).collect(),
    ))
}

pub(super) async fn measure(
    options: &Options,
    ours: &Ours,
    bare: &Bare,
    peer: Option<&Throttlecrab>,
) -> Result<Vec<Row>, BenchError> {
    let (mut our_side, mut bare_side) = (envoys(ours.grpc).await?, envoys(bare.grpc).await?);
    let checks = channels(ours.grpc).await?.into_iter().map(|channel| Check(LimitsClient::new(channel)));
    let mut check_side = Side::new(checks.collect());
    let mut peer_side = match peer {
        Some(peer) => {
            let clients = channels(peer.grpc).await?.into_iter().map(|channel| Throttle(Grpc::new(channel)));
            Some(Side::new(clients.collect()))
        }
        None => None,
    };
    let mut sides: Vec<&mut dyn Contender> = vec![&mut bare_side, &mut our_side, &mut check_side];
    sides.extend(peer_side.as_mut().map(|peer| peer as &mut dyn Contender));
    compete(options, &mut sides).await?;
    let name = |what: &str| format!("{what}, gRPC in memory, {IN_FLIGHT} in flight");
    let bare_handler = ("bare tonic handler: at least 0.7", bare_side.best.per_second());
    let mut rows = vec![
        bare_side.best.row(&name("bare tonic handler of ShouldRateLimit"), None),
        our_side.best.row(&name("tidegate ShouldRateLimit"), Some(bare_handler)),
    ];
    rows.extend(peer_side.as_ref().map(|peer| peer.best.row(&name("throttlecrab Throttle"), None)));
    let per_second = peer_side.as_ref().map(|peer| ("throttlecrab: at least 1", peer.best.per_second()));
    rows.push(check_side.best.row(&name("tidegate Check"), per_second));
    rows.push(check_side.half_load(&name("tidegate Check"), options.turn, options.turns).await?);
    Ok(rows)
}

pub(super) async fn measure_shared(options: &Options, ours: &Ours, url: &str) -> Result<Vec<Row>, BenchError> {
    let most = bare_script(url, IN_FLIGHT, options).await?;
    let mut our_side = envoys(ours.grpc).await?;
    compete(options, &mut [&mut our_side]).await?;
    let what = format!("tidegate ShouldRateLimit, gRPC on Redis, {IN_FLIGHT} in flight");
    Ok(vec![
        our_side.best.row(&what, Some(("twice Envoy ratelimit, 26,400 /s: at least 1", WANTED_ON_REDIS))),
        our_side.best.row(&what, Some(("bare script, pipelined", most))),
        our_side.half_load(&what, options.turn, options.turns).await?,
    ])
}
