//! Traces: with a collector configured, a request is a span that reaches it, at the latest when the process ends.

use std::{
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{Router, body::Bytes, http::Uri, serve::Listener};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest, common::v1::any_value::Value, trace::v1::Span,
};
use prost::Message;
use rcgen::CertifiedKey;
use rustls::{ServerConfig, pki_types::PrivateKeyDer};
use serde_json::json;
use testkit::receiver::{Behaviour, Receiver};
use tokio::{net::TcpStream, runtime::Runtime};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::support::{Backend, Call, Connection, Port, SOON, Setup, each_queue};

/// An OTLP collector over HTTP/2 without TLS, which keeps what it is sent.
struct Collector {
    addr: SocketAddr,
    calls: Arc<Mutex<Vec<(String, Bytes)>>>,
    _runtime: Runtime,
}

impl Collector {
    fn start() -> Self {
        Collector::behind(|listener| listener)
    }

    fn behind<L: Listener<Addr: std::fmt::Debug>>(doors: impl FnOnce(tokio::net::TcpListener) -> L) -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let addr = listener.local_addr().unwrap();
        let (calls, listener) = (Arc::default(), doors(listener));
        let app = Router::new().fallback(collect(Arc::clone(&calls)));
        runtime.spawn(async move { axum::serve(listener, app).await });
        Collector { addr, calls, _runtime: runtime }
    }

    /// The spans of a trace that were sent so far.
    fn spans_of(&self, trace_id: u128) -> Vec<Span> {
        // A message is behind a flag and its length.
        let read = |export: Bytes| ExportTraceServiceRequest::decode(export.slice(5..)).unwrap();
        let resources = self.exports().into_iter().map(read).flat_map(|export| export.resource_spans);
        let spans = resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans);
        spans.filter(|span| span.trace_id == trace_id.to_be_bytes()).collect()
    }

    fn exports(&self) -> Vec<Bytes> {
        let calls = self.calls.lock().unwrap();
        let path = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
        calls.iter().filter(|(called, _)| called == path).map(|(_, body)| body.clone()).collect()
    }
}

/// TLS before a listener.
struct Encrypted {
    listener: tokio::net::TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for Encrypted {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let (stream, addr) = self.listener.accept().await.unwrap();
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, addr);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

type Answer = ([(&'static str, &'static str); 2], &'static [u8]);

fn collect(
    calls: Arc<Mutex<Vec<(String, Bytes)>>>,
) -> impl Fn(Uri, Bytes) -> std::future::Ready<Answer> + Clone + Send + Sync + 'static {
    move |uri, body| {
        calls.lock().unwrap().push((uri.path().to_owned(), body));
        // An empty message: all spans were taken.
        std::future::ready(([("content-type", "application/grpc"), ("grpc-status", "0")], &[0; 5]))
    }
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

#[test]
fn a_request_is_a_span_of_its_callers_trace_and_is_exported_before_the_end() {
    let collector = Collector::start();
    let endpoint = format!("http://{}", collector.addr);
    let tidegate = Setup::serve().env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint).start();
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    Call::get("/v1/me").header("traceparent", parent).to(tidegate.addr()).expect(200);
    let output = tidegate.stop().succeeded().output;
    let exports = collector.exports();
    let trace_id = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes();
    let export = exports.iter().find(|export| contains(export, &trace_id));
    let export = export.unwrap_or_else(|| panic!("{} exports, none of this trace: {output}", exports.len()));
    assert!(contains(export, b"tidegate") && contains(export, b"/v1/me"), "{export:?}");
    assert!(!output.contains("not exported"), "{output}");
}

each_queue! { every_attempt_is_a_span_of_the_trace_that_its_event_was_sent_in }

/// Through Kafka, and through the row of a retry. Receivers are others, whose traces are their own.
fn every_attempt_is_a_span_of_the_trace_that_its_event_was_sent_in(backend: &Backend) {
    let (collector, receiver) = (Collector::start(), Receiver::start());
    receiver.set(Behaviour { fail_first: 1, ..Behaviour::default() });
    let endpoint = format!("http://{}", collector.addr);
    let tidegate = backend.under(Setup::serve()).env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint).start();
    let addr = tidegate.addr();
    let subscription = json!({"url": receiver.url("/"), "event_types": ["**"], "retry_schedule": ["100ms"]});
    Call::post("/v1/subscriptions", subscription).to(addr).expect(201);
    let event = Call::post("/v1/events", json!({"type": "a.b", "data": {}}));
    event.header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").to(addr).expect(202);
    let received = receiver.received_blocking(2, SOON);
    assert!(received.iter().all(|request| !request.headers.contains_key("traceparent")), "{received:?}");
    tidegate.stop().succeeded();

    let spans = collector.spans_of(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
    let mut attempts: Vec<&Span> = spans.iter().filter(|span| span.name == "delivery").collect();
    attempts.sort_by_key(|span| span.start_time_unix_nano);
    assert_eq!(attempts.len(), 2, "{spans:?}");
    for (attempt, status) in attempts.into_iter().zip([500, 200]) {
        assert!(spans.iter().any(|span| span.span_id == attempt.parent_span_id), "{spans:?}");
        let told = attempt.attributes.iter().find(|told| told.key == "http.response.status_code");
        assert_eq!(told.and_then(|told| told.value.clone()?.value), Some(Value::IntValue(status)), "{attempt:?}");
    }
}

/// It was accepted by the check of the configuration, and ended the process with a panic.
#[test]
fn a_collector_behind_tls_is_trusted_as_the_system_says() {
    let CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap())
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let collector = Collector::behind(|listener| Encrypted { listener, acceptor });
    let endpoint = format!("https://localhost:{}", collector.addr.port());
    let trusting = |authority: &str| {
        let setup = Setup::serve().file("ca.pem", authority).env("SSL_CERT_FILE", "ca.pem");
        let tidegate = setup.env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint).start();
        tidegate.get("/v1/me").expect(200);
        tidegate.stop().succeeded();
    };
    trusting(&rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem());
    assert!(collector.exports().is_empty(), "it was sent to whom nobody vouches for");
    trusting(&cert.pem());
    assert!(collector.exports().iter().any(|export| contains(export, b"/v1/me")));
}

#[test]
fn a_collector_that_is_gone_or_silent_delays_nothing() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = Port::reserve();
    for addr in [silent.local_addr().unwrap(), gone.addr()] {
        let tidegate = Setup::serve().env("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{addr}")).start();
        let asked = Instant::now();
        tidegate.get("/v1/me").expect(200);
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
        tidegate.terminate();
        tidegate.wait(SOON).succeeded();
        println!("it ended {:?} after the request with the collector {addr}", asked.elapsed());
    }
}

#[test]
fn a_silent_collector_does_not_outlast_the_shutdown_timeout_or_a_second_signal() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let setup = || Setup::serve().env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint);

    let tidegate = setup().env("DRAIN_TIMEOUT", "0s").env("SHUTDOWN_TIMEOUT", "1s").start();
    tidegate.get("/v1/me").expect(200);
    let told = Instant::now();
    tidegate.stop().succeeded();
    assert!(told.elapsed() < Duration::from_secs(5), "{:?}", told.elapsed());

    // Once while the traces wait for the collector, once while a request still hangs.
    for hanging_requests in [0, 1] {
        let tidegate = setup().start();
        tidegate.get("/v1/me").expect(200);
        let hanging: Vec<Connection> =
            (0..hanging_requests).map(|_| Connection::in_flight(tidegate.addr(), "/admin/tenants", 100)).collect();
        tidegate.terminate();
        tidegate.wait_until_closed();
        let second = Instant::now();
        tidegate.stop().succeeded();
        assert!(second.elapsed() < Duration::from_secs(5), "{:?} with {}", second.elapsed(), hanging.len());
    }
}
