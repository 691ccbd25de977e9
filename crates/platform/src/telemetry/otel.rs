//! Trace export over OTLP gRPC.

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
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
