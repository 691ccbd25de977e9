//! Logs, metrics and traces: set up once, before anything else runs.
//!
//! Logs are JSON unless a person is watching. Metrics are rendered on the ops listener. Traces leave only when an
//! endpoint is configured and the binary was built with the `otel` feature.

use std::{io::IsTerminal, time::Duration};

use axum::{
    Router,
    http::{HeaderMap, Method, Uri, header},
    routing::get,
};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use serde::Deserialize;
use tracing::Level;
use tracing_subscriber::{
    Layer, Registry,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use crate::{config::Invalid, shutdown::Tasks};

#[cfg(feature = "otel")]
mod otel;

const OTLP_ENDPOINT: &str = "telemetry.otlp_endpoint";

/// The target of spans, which they are filtered by.
pub const REQUEST: &str = "tidegate::request";

/// Our own crates. A bare level is for them: libraries say more than may be in a log. PostgreSQL's client writes the
/// parameters of its statements at debug, which are payloads and addresses with their tokens.
const OURS: [&str; 6] = ["tidegate", "dispatch", "gate", "limits", "platform", "tenancy"];

/// The section `[telemetry]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub log: String,
    pub log_format: LogFormat,
    pub otlp_endpoint: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Pretty on a terminal, JSON elsewhere.
    Auto,
    Json,
    Pretty,
}

#[derive(Clone, Debug)]
pub struct Config {
    filter: Targets,
    is_json: bool,
    #[cfg_attr(not(feature = "otel"), expect(dead_code, reason = "only trace export reads it"))]
    otlp_endpoint: Option<String>,
}

impl TryFrom<File> for Config {
    type Error = Invalid;

    fn try_from(file: File) -> Result<Self, Invalid> {
        let filter = file.log.parse().map(ours_alone).map_err(|_| {
            Invalid::new(
                "telemetry.log",
                format!("{:?} is not a log filter: write \"info\" or \"info,platform=debug\"", file.log),
            )
        })?;
        let otlp_endpoint = (!file.otlp_endpoint.is_empty()).then_some(file.otlp_endpoint);
        if let Some(endpoint) = &otlp_endpoint {
            check_endpoint(endpoint)?;
        }
        let is_json = match file.log_format {
            LogFormat::Auto => !std::io::stderr().is_terminal(),
            LogFormat::Json => true,
            LogFormat::Pretty => false,
        };
        Ok(Config { filter, is_json, otlp_endpoint })
    }
}

fn check_endpoint(endpoint: &str) -> Result<(), Invalid> {
    if !cfg!(feature = "otel") {
        return Err(Invalid::new(
            OTLP_ENDPOINT,
            "this binary was built without trace export: build it with `cargo build --features otel`",
        ));
    }
    let is_url = endpoint.parse::<Uri>().is_ok_and(|url| matches!(url.scheme_str(), Some("http" | "https")));
    if !is_url {
        return Err(Invalid::new(
            OTLP_ENDPOINT,
            format!("{endpoint:?} is not a URL of an OTLP gRPC collector: write one such as \"http://127.0.0.1:4317\""),
        ));
    }
    Ok(())
}

/// The span of a request, in the caller's trace if the caller sent one (`traceparent`). See [`without_requests`].
pub fn request_span(method: &Method, route: &str, headers: &HeaderMap) -> tracing::Span {
    let span = tracing::info_span!(target: REQUEST, "request", %method, route);
    #[cfg(feature = "otel")]
    otel::follow(&span, &otel::Headers(headers));
    #[cfg(not(feature = "otel"))]
    let _ = headers;
    span
}

/// Does each request have a span, in traces or in the log? See [`without_requests`].
pub fn notes_requests() -> bool {
    tracing::span_enabled!(target: REQUEST, Level::INFO)
}

/// Makes `span` a part of the trace that a [`traceparent`] names.
pub fn follow(span: &tracing::Span, traceparent: &str) {
    #[cfg(feature = "otel")]
    otel::follow(span, &otel::Parent(traceparent));
    #[cfg(not(feature = "otel"))]
    let _ = (span, traceparent);
}

/// Libraries get more than info only where one is named.
fn ours_alone(filter: Targets) -> Targets {
    let Some(level) = filter.default_level().filter(|level| *level > LevelFilter::INFO) else { return filter };
    let is_named = |name: &str| filter.iter().any(|(target, _)| target == name);
    let ours = OURS.into_iter().filter(|name| !is_named(name)).map(|name| (name, level));
    filter.clone().with_default(LevelFilter::INFO).with_targets(ours)
}

/// Log lines name their request only at debug: to note each request for lines that hardly any of them writes would cost as
/// much as half of a small request. Exported traces always have it.
fn without_requests(filter: &Targets) -> Targets {
    match filter.would_enable(REQUEST, &Level::DEBUG) {
        true => filter.clone(),
        false => filter.clone().with_target(REQUEST, LevelFilter::OFF),
    }
}

/// The trace that the running code belongs to, as a `traceparent`; `None` where no traces are exported.
pub fn traceparent() -> Option<String> {
    #[cfg(feature = "otel")]
    return otel::traceparent();
    #[cfg(not(feature = "otel"))]
    None
}

/// What must live as long as the process: the metrics, and the traces not sent yet.
pub struct Telemetry {
    metrics: PrometheusHandle,
    #[cfg(feature = "otel")]
    traces: Option<opentelemetry_sdk::trace::SdkTracerProvider>,
}

/// Installs the log subscriber and the metrics recorder of this process.
pub fn init(config: &Config) -> Result<Telemetry, Invalid> {
    let output: Box<dyn Layer<Registry> + Send + Sync> = if config.is_json {
        Box::new(tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(std::io::stderr))
    } else {
        Box::new(tracing_subscriber::fmt::layer().with_target(false).with_writer(std::io::stderr))
    };
    let layers = vec![output.with_filter(without_requests(&config.filter)).boxed()];

    #[cfg(feature = "otel")]
    let (layers, traces) = otel::add(layers, config.otlp_endpoint.as_deref())?;

    tracing_subscriber::registry().with(layers).init();
    Ok(Telemetry {
        metrics: install_recorder(),
        #[cfg(feature = "otel")]
        traces,
    })
}

fn install_recorder() -> PrometheusHandle {
    const SECONDS: &[f64] =
        &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), SECONDS)
        .and_then(PrometheusBuilder::install_recorder)
        .expect("the buckets are not empty, and the recorder is installed once")
}

impl Telemetry {
    /// `/metrics`.
    pub fn routes(&self) -> Router {
        let metrics = self.metrics.clone();
        let content_type = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
        Router::new().route("/metrics", get(move || std::future::ready((content_type, metrics.render()))))
    }

    /// Histograms collect samples until someone folds them; without a scraper they would grow.
    pub fn upkeep(&self, tasks: &Tasks) {
        let (metrics, stopping) = (self.metrics.clone(), tasks.stopping().clone());
        tasks.spawn("metrics upkeep", async move {
            let mut tick = tokio::time::interval(Duration::from_secs(5));
            while stopping.run_until_cancelled(tick.tick()).await.is_some() {
                metrics.run_upkeep();
            }
        });
    }

    /// Sends what is left; called last.
    pub fn flush(&self) {
        #[cfg(feature = "otel")]
        if let Some(traces) = &self.traces
            && let Err(error) = traces.shutdown()
        {
            tracing::warn!(%error, "Some traces were not exported.");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_name_their_request_only_at_debug() {
        for (filter, names) in
            [("info", false), ("info,platform=debug", false), ("info,tidegate::request=debug", true), ("debug", true)]
        {
            let filter = without_requests(&filter.parse().unwrap());
            assert_eq!(filter.would_enable(REQUEST, &Level::INFO), names, "{filter}");
            assert!(filter.would_enable("tidegate", &Level::INFO), "{filter}");
        }
    }

    #[test]
    fn a_bare_level_is_for_our_own_crates_and_a_library_has_to_be_named() {
        let filter = |text: &str| ours_alone(text.parse().unwrap());
        for text in ["debug", "trace", "debug,platform=info", "trace,hyper=warn"] {
            let filter = filter(text);
            assert!(filter.would_enable("dispatch::worker", &Level::DEBUG), "{filter}");
            assert!(filter.would_enable(REQUEST, &Level::DEBUG), "{filter}");
            assert!(filter.would_enable("tokio_postgres::query", &Level::INFO), "{filter}");
            for library in ["tokio_postgres::query", "h2::codec", "hyper", "rustls", "librdkafka", "redis"] {
                assert!(!filter.would_enable(library, &Level::DEBUG), "{filter}");
            }
        }
        assert!(!filter("debug,platform=info").would_enable("platform", &Level::DEBUG));
        assert!(filter("info,tokio_postgres=debug").would_enable("tokio_postgres::query", &Level::DEBUG));
        assert!(filter("debug,h2=trace").would_enable("h2::codec", &Level::TRACE));
        assert!(!filter("warn").would_enable("tokio_postgres", &Level::INFO));
        assert!(filter("platform=trace").would_enable("platform", &Level::TRACE));
    }
}
