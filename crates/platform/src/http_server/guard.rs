//! What every request passes: its span, the deadline, the panic barrier, the limit of its body, and measurement.
//!
//! There is one guard per route and method, so what a request is counted by is looked up once and not per request. Labels
//! are the route's pattern, never the path: a stranger cannot grow the metrics.

use std::{
    any::Any,
    convert::Infallible,
    future::{Future, poll_fn},
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    extract::{DefaultBodyLimit, MatchedPath, Request},
    http::{Method, StatusCode},
    response::{IntoResponse, Response},
};
use futures_util::FutureExt;
use metrics::{Counter, Histogram};
use tokio::time::Instant;
use tower::{Layer, Service};
use tracing::Instrument;

use super::{REQUEST_SECONDS, REQUESTS};
use crate::{problem::Problem, shutdown::panic_text, telemetry};

/// The methods that are counted each for itself.
const METHODS: [Method; 5] = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The layer.
#[derive(Clone, Copy)]
pub(super) struct Guard {
    pub(super) deadline: Duration,
    pub(super) max_body: usize,
}

impl<S> Layer<S> for Guard {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { inner, guard: *self, meters: Arc::default() }
    }
}

/// One route's handler behind the guard.
#[derive(Clone)]
pub(super) struct Guarded<S> {
    inner: S,
    guard: Guard,
    meters: Arc<[OnceLock<Meter>; METHODS.len() + 1]>,
}

impl<S> Service<Request> for Guarded<S>
where
    S: Service<Request, Response = Response, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let started = Instant::now();
        let Guard { deadline, max_body } = self.guard;
        let route = request.extensions().get::<MatchedPath>().map_or("unknown", MatchedPath::as_str);
        let span = telemetry::request_span(request.method(), route, request.headers());
        let (method, meters) = (method_index(request.method()), Arc::clone(&self.meters));
        meters[method].get_or_init(|| Meter::new(request.method(), route));
        DefaultBodyLimit::max(max_body).apply(&mut request);
        let handler = self.inner.call(request).instrument(span);
        Box::pin(async move {
            let response = match within(started + deadline, handler).await {
                Ok(Ok(response)) => response,
                Err(cut) => cut.problem(deadline).into_response(),
            };
            if let Some(meter) = meters[method].get() {
                meter.record(response.status(), started.elapsed());
            }
            Ok(response)
        })
    }
}

/// Why a handler gave no answer.
pub enum Cut {
    Panic(Box<dyn Any + Send>),
    Deadline,
}

impl Cut {
    /// What is answered instead.
    pub(super) fn problem(&self, deadline: Duration) -> Problem {
        match self {
            Cut::Panic(panic) => {
                tracing::error!(panic = panic_text(&**panic), "A request handler panicked.");
                let detail = "something went wrong here; the log has the cause";
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
            }
            Cut::Deadline => {
                let detail = format!(
                    "the request took longer than {deadline:?} (server.request_timeout); what had arrived may be done all the same, such as the lines of NDJSON before the last"
                );
                Problem::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", detail)
            }
        }
    }
}

/// What a handler answers, behind the panic barrier and by the deadline.
pub async fn within<T>(deadline: Instant, handler: impl Future<Output = T>) -> Result<T, Cut> {
    let mut handler = std::pin::pin!(AssertUnwindSafe(handler).catch_unwind());
    // Most answers are there at once: only who has to wait needs a clock.
    let answered = match poll_fn(|context| Poll::Ready(handler.as_mut().poll(context))).await {
        Poll::Ready(answered) => answered,
        Poll::Pending => tokio::time::timeout_at(deadline, handler).await.map_err(|_| Cut::Deadline)?,
    };
    answered.map_err(Cut::Panic)
}

/// What one route and method are counted by.
pub(super) struct Meter {
    labels: [(&'static str, String); 2],
    by_class: [OnceLock<Counter>; CLASSES.len()],
    seconds: Histogram,
}

impl Meter {
    pub(super) fn new(method: &Method, route: &str) -> Meter {
        let method = METHODS.get(method_index(method)).map_or("other", Method::as_str);
        let labels = [("method", method.to_owned()), ("route", route.to_owned())];
        Meter { seconds: metrics::histogram!(REQUEST_SECONDS, &labels), labels, by_class: Default::default() }
    }

    pub(super) fn record(&self, status: StatusCode, took: Duration) {
        let class = usize::from(status.as_u16() / 100 - 1).min(CLASSES.len() - 1);
        let counter = self.by_class[class].get_or_init(|| {
            let [(_, method), (_, route)] = self.labels.clone();
            metrics::counter!(REQUESTS, "method" => method, "route" => route, "status" => CLASSES[class])
        });
        counter.increment(1);
        self.seconds.record(took.as_secs_f64());
    }
}

fn method_index(method: &Method) -> usize {
    METHODS.iter().position(|known| known == method).unwrap_or(METHODS.len())
}
