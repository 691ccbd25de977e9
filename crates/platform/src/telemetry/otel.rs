//! Trace export over OTLP gRPC, and the trace context that callers send.

use std::collections::HashMap;

use axum::http::{HeaderMap, Uri};
use opentelemetry::{
    propagation::{Extractor, TextMapPropagator},
    trace::TracerProvider,
};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithTonicConfig, tonic_types::transport::ClientTlsConfig};
use opentelemetry_sdk::{Resource, propagation::TraceContextPropagator, trace::SdkTracerProvider};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{Layer, Registry, filter::LevelFilter};

use super::OTLP_ENDPOINT;
use crate::config::Invalid;

const TRACEPARENT: &str = "traceparent";

type Layers = Vec<Box<dyn Layer<Registry> + Send + Sync>>;

/// Adds the export layer when an endpoint is configured. The provider batches on a thread of its own and sends what is
/// left when it is shut down.
pub(super) fn add(mut layers: Layers, endpoint: Option<&str>) -> Result<(Layers, Option<SdkTracerProvider>), Invalid> {
    let Some(endpoint) = endpoint else { return Ok((layers, None)) };
    let mut exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint);
    if endpoint.parse::<Uri>().is_ok_and(|url| url.scheme_str() == Some("https")) {
        exporter = exporter.with_tls_config(ClientTlsConfig::new().with_native_roots());
    }
    let exporter = exporter.build().map_err(|error| {
        let problem = format!(
            "traces cannot be sent to {endpoint:?}: {error}: for https:// install the system's certificates, or name others in SSL_CERT_FILE"
        );
        Invalid::new(OTLP_ENDPOINT, problem)
    })?;
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(Resource::builder().with_service_name("tidegate").build())
        .build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("tidegate"));
    layers.push(layer.with_filter(LevelFilter::INFO).boxed());
    Ok((layers, Some(provider)))
}

pub(super) fn follow(span: &tracing::Span, parent: &impl Extractor) {
    if parent.get(TRACEPARENT).is_some() {
        // It fails only when no exporter is set up, and then there is nothing to follow.
        drop(span.set_parent(TraceContextPropagator::new().extract(parent)));
    }
}

pub(super) fn traceparent() -> Option<String> {
    let span = tracing::Span::current();
    if span.is_none() {
        return None;
    }
    let mut carrier = HashMap::new();
    TraceContextPropagator::new().inject_context(&span.context(), &mut carrier);
    carrier.remove(TRACEPARENT)
}

/// What was kept of a trace.
pub(super) struct Parent<'a>(pub(super) &'a str);

impl Extractor for Parent<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        (key == TRACEPARENT).then_some(self.0)
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT]
    }
}

/// What a caller sent.
pub(super) struct Headers<'a>(pub(super) &'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(|name| name.as_str()).collect()
    }
}
