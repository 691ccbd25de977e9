//! Traces: with a collector configured, a request is a span that reaches it, at the latest when the process ends.

use std::{
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{Router, body::Bytes, http::Uri};
use tokio::runtime::Runtime;

use crate::support::{Call, Connection, Port, SOON, Setup};

/// An OTLP collector over HTTP/2 without TLS, which keeps what it is sent.
struct Collector {
    addr: SocketAddr,
    calls: Arc<Mutex<Vec<(String, Bytes)>>>,
    _runtime: Runtime,
}

impl Collector {
    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let addr = listener.local_addr().unwrap();
        let calls = Arc::default();
        let app = Router::new().fallback(collect(Arc::clone(&calls)));
        runtime.spawn(async move { axum::serve(listener, app).await });
        Collector { addr, calls, _runtime: runtime }
    }

    fn exports(&self) -> Vec<Bytes> {
        let calls = self.calls.lock().unwrap();
        let path = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
        calls.iter().filter(|(called, _)| called == path).map(|(_, body)| body.clone()).collect()
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
