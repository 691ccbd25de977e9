//! What every call passes: a bound on calls under way, a deadline, the panic barrier. Their answers are gRPC's own.

use std::{
    convert::Infallible,
    future::{Future, ready},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use platform::http_server::{Cut, within};
use tokio::time::Instant;
use tonic::{
    Status,
    body::Body,
    codegen::http::{Request, Response, StatusCode, header},
};

use super::services::Answering;
use crate::metrics::GRPC_SHED;

/// Calls under way: beyond, Redis' deadline would pass while the last of them waits.
const MOST_UNDER_WAY: usize = 4096;

const GRPC: &[u8] = b"application/grpc";

/// Cheap to clone.
#[derive(Clone)]
pub(super) struct Guard {
    under_way: Arc<AtomicUsize>,
    deadline: Duration,
}

/// A call under way.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Guard {
    pub(super) fn new(deadline: Duration) -> Guard {
        Guard { under_way: Arc::default(), deadline }
    }

    fn place(&self) -> Option<Place> {
        let before = self.under_way.fetch_add(1, Ordering::Relaxed);
        let place = Place(Arc::clone(&self.under_way));
        (before < MOST_UNDER_WAY).then_some(place)
    }

    /// The answer of `call`, if it may be made.
    pub(super) fn watch<B, F>(&self, request: Request<B>, call: impl FnOnce(Request<B>) -> F) -> Answering
    where
        F: Future<Output = Result<Response<Body>, Infallible>> + Send + 'static,
    {
        let is_grpc = request.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(GRPC));
        if !is_grpc {
            let detail = "send content-type: application/grpc";
            return Box::pin(ready(Ok(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail))));
        }
        let Some(place) = self.place() else {
            metrics::counter!(GRPC_SHED).increment(1);
            let detail = format!("{MOST_UNDER_WAY} calls are under way here: try again, or ask another replica");
            return Box::pin(ready(Ok(Status::unavailable(detail).into_http())));
        };
        let (deadline, handler) = (self.deadline, call(request));
        Box::pin(async move {
            let answered = within(Instant::now() + deadline, handler).await;
            drop(place);
            answered.unwrap_or_else(|cut| Ok(cut_off(&cut, deadline).into_http()))
        })
    }
}

fn cut_off(cut: &Cut, deadline: Duration) -> Status {
    match cut {
        Cut::Panic(_) => {
            tracing::error!("A gRPC handler panicked.");
            Status::internal("something went wrong here; the log has the cause")
        }
        Cut::Deadline => {
            Status::deadline_exceeded(format!("the call took longer than {deadline:?} (server.request_timeout)"))
        }
    }
}

/// For whoever does not speak gRPC at all.
pub(super) fn refuse(status: StatusCode, detail: &str) -> Response<Body> {
    let mut response = Response::new(Body::new(format!("this listener speaks gRPC: {detail}")));
    *response.status_mut() = status;
    response
}
