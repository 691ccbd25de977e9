//! gRPC, 64 calls in flight: beside the bare tonic handler, beside throttlecrab-server, and on Redis beside the bare script.

use std::{io, marker::PhantomData, net::SocketAddr};

use axum::http::{HeaderValue, Method, Request, Uri, Version};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::future::poll_fn;
use gate::bench::Row;
use h2::client::SendRequest;
use prost::Message;
use tokio::net::TcpStream;

use super::{
    BenchError, Options, bare_script,
    load::{Contender, Load, Round, Side, compete, key},
    servers::{Bare, Ours, Throttlecrab},
};
use crate::grpc::wire::{
    envoy::{
        extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
        service::ratelimit::v3::{RateLimitRequest, RateLimitResponse, rate_limit_response::Code},
    },
    tidegate::limits::v1::{CheckRequest, CheckResponse},
};

const IN_FLIGHT: usize = 64;
/// Envoy has one for each of its worker threads, and those are as many as there are cores.
const CONNECTIONS: usize = 2;
/// Twice what Envoy ratelimit did on Redis, 64 in flight, on two cores with its client beside it.
const WANTED_ON_REDIS: f64 = 2.0 * 13_200.0;
/// Before each message: not compressed, and its length.
const PREFIX: usize = 5;

/// A question about a key, and what its answer says.
trait Protocol: Send + 'static {
    const METHOD: &str;
    type Question: Message;
    type Answer: Message + Default;

    fn ask(key: String) -> Self::Question;
    fn is_admitted(answer: &Self::Answer) -> bool;
}

/// One call at a time, straight on HTTP/2: what a client of more comfort costs is missing to the servers on the same cores.
struct Caller<P> {
    connection: SendRequest<Bytes>,
    uri: Uri,
    protocol: PhantomData<P>,
}

impl<P: Protocol> Caller<P> {
    async fn many(addr: SocketAddr) -> Result<Side<Caller<P>>, BenchError> {
        let uri: Uri = format!("http://{addr}{}", P::METHOD).parse().map_err(io::Error::other)?;
        let mut callers = Vec::with_capacity(IN_FLIGHT);
        for _ in 0..CONNECTIONS {
            let stream = TcpStream::connect(addr).await?;
            stream.set_nodelay(true)?;
            let (sender, connection) = h2::client::handshake(stream).await?;
            #[expect(clippy::disallowed_methods, reason = "it ends with its callers")]
            tokio::spawn(connection);
            callers.extend((0..IN_FLIGHT / CONNECTIONS).map(|_| Caller {
                connection: sender.clone(),
                uri: uri.clone(),
                protocol: PhantomData,
            }));
        }
        Ok(Side::new(callers))
    }

    async fn call(&mut self, question: &P::Question) -> Result<P::Answer, BenchError> {
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = self.uri.clone();
        request.headers_mut().insert("content-type", const { HeaderValue::from_static("application/grpc") });
        request.headers_mut().insert("te", const { HeaderValue::from_static("trailers") });
        let mut message = BytesMut::with_capacity(PREFIX + question.encoded_len());
        message.put_u8(0);
        #[expect(clippy::cast_possible_truncation, reason = "a small question")]
        message.put_u32(question.encoded_len() as u32);
        question.encode(&mut message).map_err(io::Error::other)?;

        poll_fn(|context| self.connection.poll_ready(context)).await?;
        let (response, mut body) = self.connection.send_request(request, false)?;
        body.send_data(message.freeze(), true)?;
        let mut body = response.await?.into_body();
        let mut answer = BytesMut::new();
        while let Some(data) = body.data().await.transpose()? {
            body.flow_control().release_capacity(data.len())?;
            answer.extend_from_slice(&data);
        }
        body.trailers().await?;
        let message = answer.get(PREFIX..).ok_or_else(|| io::Error::other("a call was answered with no message"))?;
        Ok(P::Answer::decode(message).map_err(io::Error::other)?)
    }
}

impl<P: Protocol> Load for Caller<P> {
    async fn round(&mut self, number: u64) -> Result<Round, BenchError> {
        let answer = self.call(&P::ask(format!("user-{:07}", key(number)))).await?;
        Ok(Round { asked: 1, admitted: u64::from(P::is_admitted(&answer)) })
    }
}

struct Envoy;

impl Protocol for Envoy {
    const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    type Question = RateLimitRequest;
    type Answer = RateLimitResponse;

    fn ask(key: String) -> RateLimitRequest {
        let entry = Entry { key: "user".to_owned(), value: key };
        let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
        RateLimitRequest { domain: "bench".to_owned(), descriptors: vec![descriptor], hits_addend: 1 }
    }

    fn is_admitted(answer: &RateLimitResponse) -> bool {
        answer.overall_code() == Code::Ok
    }
}

/// Our own check: a key and a rule, as small as the peer's question.
struct Check;

impl Protocol for Check {
    const METHOD: &str = "/tidegate.limits.v1.Limits/Check";
    type Question = CheckRequest;
    type Answer = CheckResponse;

    fn ask(key: String) -> CheckRequest {
        CheckRequest { key, ..CheckRequest::default() }
    }

    fn is_admitted(answer: &CheckResponse) -> bool {
        answer.allowed
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

struct Throttle;

impl Protocol for Throttle {
    const METHOD: &str = "/throttlecrab.RateLimiter/Throttle";
    type Question = ThrottleRequest;
    type Answer = ThrottleResponse;

    fn ask(key: String) -> ThrottleRequest {
        ThrottleRequest { key, max_burst: 1_000_000, count_per_period: 1_000_000, period: 1, quantity: 1 }
    }

    fn is_admitted(answer: &ThrottleResponse) -> bool {
        answer.allowed
    }
}

pub(super) async fn measure(
    options: &Options,
    ours: &Ours,
    bare: &Bare,
    peer: Option<&Throttlecrab>,
) -> Result<Vec<Row>, BenchError> {
    let mut our_side = Caller::<Envoy>::many(ours.grpc).await?;
    let mut bare_side = Caller::<Envoy>::many(bare.grpc).await?;
    let mut check_side = Caller::<Check>::many(ours.grpc).await?;
    let mut peer_side = match peer {
        Some(peer) => Some(Caller::<Throttle>::many(peer.grpc).await?),
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
    let mut our_side = Caller::<Envoy>::many(ours.grpc).await?;
    compete(options, &mut [&mut our_side]).await?;
    let what = format!("tidegate ShouldRateLimit, gRPC on Redis, {IN_FLIGHT} in flight");
    Ok(vec![
        our_side.best.row(&what, Some(("twice Envoy ratelimit, 26,400 /s: at least 1", WANTED_ON_REDIS))),
        our_side.best.row(&what, Some(("bare script, pipelined", most))),
        our_side.half_load(&what, options.turn, options.turns).await?,
    ])
}
