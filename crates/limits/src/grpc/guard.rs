//! What every call passes: a bound on calls under way, a deadline, the panic barrier. Their answers are gRPC's own.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::Request,
    http::{StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures_util::FutureExt;
use tokio::sync::Semaphore;
use tonic::Status;

use crate::metrics::GRPC_SHED;

/// Calls under way: beyond, Redis' deadline would pass while the last of them waits.
const MOST_UNDER_WAY: usize = 4096;

const GRPC: &[u8] = b"application/grpc";

pub(super) fn guard(router: Router, deadline: Duration) -> Router {
    let places = Arc::new(Semaphore::new(MOST_UNDER_WAY));
    router.layer(axum::middleware::from_fn(move |request, next| guarded(places.clone(), deadline, request, next)))
}

async fn guarded(places: Arc<Semaphore>, deadline: Duration, request: Request, next: Next) -> Response {
    // A web page can post to any port of the machine, but not with this type.
    let is_grpc = request.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(GRPC));
    if !is_grpc {
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, "this listener speaks gRPC: send content-type: application/grpc")
            .into_response();
    }
    let Ok(_place) = places.try_acquire() else {
        metrics::counter!(GRPC_SHED).increment(1);
        let detail = format!("{MOST_UNDER_WAY} calls are under way here: try again, or ask another replica");
        return Status::unavailable(detail).into_http();
    };
    let handler = AssertUnwindSafe(next.run(request)).catch_unwind();
    match tokio::time::timeout(deadline, handler).await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => {
            tracing::error!("A gRPC handler panicked.");
            Status::internal("something went wrong here; the log has the cause").into_http()
        }
        Err(_) => Status::deadline_exceeded(format!("the call took longer than {deadline:?} (server.request_timeout)"))
            .into_http(),
    }
}
