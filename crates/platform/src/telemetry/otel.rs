//! Trace export over OTLP gRPC, and the trace context that callers send.

use std::collections::HashMap;

use axum::http::HeaderMap;
use opentelemetry::{
    propagation::{Extractor, TextMapPropagator},
    trace::TracerProvider,
};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::{Resource, propagation::TraceContextPropagator, trace::SdkTracerProvider};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{Layer, Registry, filter::LevelFilter};

type Layers = Vec<Box<dyn Layer<Registry> + Send + Sync>>;

/// Adds the export layer when an endpoint is configured. The provider batches on a thread of its own and sends what is
/// left when it is shut down.
pub(super) fn add(mut layers: Layers, endpoint: Option<&str>) -> (Layers, Option<SdkTracerProvider>) {
    let Some(endpoint) = endpoint else { return (layers, None) };
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .build()
        .expect("the endpoint was checked with the configuration");
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(Resource::builder().with_service_name("tidegate").build())
        .build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("tidegate"));
    layers.push(layer.with_filter(LevelFilter::INFO).boxed());
    (layers, Some(provider))
}

pub(super) fn follow(span: &tracing::Span, headers: &HeaderMap) {
    if headers.contains_key("traceparent") {
        // It fails only when no exporter is set up, and then there is nothing to follow.
        drop(span.set_parent(TraceContextPropagator::new().extract(&Headers(headers))));
    }
}

pub(super) fn traceparent() -> Option<String> {
    let mut carrier = HashMap::new();
    TraceContextPropagator::new().inject_context(&tracing::Span::current().context(), &mut carrier);
    carrier.remove("traceparent")
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(|name| name.as_str()).collect()
    }
}
