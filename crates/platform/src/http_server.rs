//! The only place that accepts connections.
//!
//! Everything a stranger can hold is bounded: connections, the time to send a request's head, the time and size of the
//! whole request, the time to take its answer. A connection that has not sent a request within the header timeout is
//! closed, also before it is known whether it speaks HTTP/1.1 or HTTP/2; one on which nothing moves any more, after the
//! idle timeout. On shutdown open requests may finish until the drain timeout; then they are cut.

mod guard;
mod lane;
mod patient;
mod pulse;
mod streams;
#[cfg(test)]
mod tests;

use std::{convert::Infallible, future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    BoxError, Router,
    http::{Method, StatusCode, Uri},
};
use futures_util::TryFutureExt;
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Semaphore,
    time::Instant,
};
use tower::Service;

use self::{
    guard::Guard,
    lane::Entry,
    patient::Patient,
    pulse::{Beating, Pulse},
    streams::{Arrivals, Streams},
};
pub use self::{
    guard::{Cut, within},
    lane::{Lane, Plain, Reply},
};
use crate::{problem::Problem, shutdown::Tasks};

pub const CONNECTIONS: &str = "tidegate_http_connections";
pub const CONNECTIONS_REFUSED: &str = "tidegate_http_connections_refused_total";
/// Whose clients did not take their answer.
pub const CONNECTIONS_STALLED: &str = "tidegate_http_connections_stalled_total";
pub const REQUESTS: &str = "tidegate_http_requests_total";
pub const REQUEST_SECONDS: &str = "tidegate_http_request_seconds";

/// What a listener allows its callers.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub max_connections: usize,
    /// From accept, or the end of the last request, to the end of the next request's head.
    pub header_timeout: Duration,
    /// From the request's head to the response's head: a body that drips cannot hold a handler for longer.
    /// As long may a write wait for the client to take some of it.
    pub request_timeout: Duration,
    /// Without a request, a part of an answer, or that the client takes any. HTTP/1.1 between requests has the header
    /// timeout.
    pub idle_timeout: Duration,
    pub max_body: usize,
    pub drain_timeout: Duration,
}

/// Binds a listener with a long queue of connections: under load hundreds come at once, and one that finds no place tries
/// again only after a second.
pub fn bind(addr: SocketAddr) -> io::Result<TcpListener> {
    const WAITING: u32 = 8192;
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(WAITING)
}

/// Wraps a role's routes in what every request passes: measurement, panic barrier, deadline, body limit.
pub fn with_limits(router: Router, limits: &Limits) -> Router {
    router
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(Guard { deadline: limits.request_timeout, max_body: limits.max_body })
}

/// Serves until [`Tasks::stopping`], then drains. `service` is a router, or anything else that is always ready.
pub async fn serve<S, B>(name: &'static str, listener: TcpListener, service: S, limits: Limits, tasks: Tasks)
where
    S: Service<hyper::Request<Incoming>, Response = hyper::Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: hyper::body::Body<Data: Send, Error: Into<BoxError>> + Unpin + Send + 'static,
{
    let of_connection = tasks.clone();
    let handle = move |stream| connection(stream, Instant::now(), service.clone(), limits, of_connection.clone());
    accept(name, listener, limits.max_connections, tasks, handle).await;
}

/// The same with a lane before it: what the lane does not answer, `service` does.
pub async fn serve_with_lane<L, S, B>(
    name: &'static str,
    listener: TcpListener,
    lane: L,
    service: S,
    limits: Limits,
    tasks: Tasks,
) where
    L: Lane,
    S: Service<hyper::Request<Incoming>, Response = hyper::Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: hyper::body::Body<Data: Send, Error: Into<BoxError>> + Unpin + Send + 'static,
{
    let entry = Arc::new(Entry::new(lane, limits));
    let of_connection = tasks.clone();
    let handle = move |stream| {
        let (entry, service, tasks) = (Arc::clone(&entry), service.clone(), of_connection.clone());
        async move {
            if let Some((stream, since)) = entry.serve(stream, tasks.stopping().child_token()).await {
                connection(stream, since, service, limits, tasks).await;
            }
        }
    };
    accept(name, listener, limits.max_connections, tasks, handle).await;
}

/// Accepts until [`Tasks::stopping`], at most so many connections at a time; `handle` serves each and drains it.
pub async fn accept<F: Future<Output = ()> + Send + 'static>(
    name: &'static str,
    listener: TcpListener,
    max_connections: usize,
    tasks: Tasks,
    handle: impl Fn(TcpStream) -> F,
) {
    let slots = Arc::new(Semaphore::new(max_connections));
    let stopping = tasks.stopping().clone();
    loop {
        let accepted = tokio::select! {
            () = stopping.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, most likely: accepting again at once would only spin.
                tracing::warn!(listener = name, %error, "Could not accept a connection.");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            metrics::counter!(CONNECTIONS_REFUSED, "listener" => name).increment(1);
            continue;
        };
        // Answers are small and somebody waits for each of them.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "Could not set TCP_NODELAY.");
        }
        let serving = handle(stream);
        tasks.spawn("connection", async move {
            let open = metrics::gauge!(CONNECTIONS, "listener" => name);
            open.increment(1);
            serving.await;
            open.decrement(1);
            drop(slot);
        });
    }
}

/// `since` is when its next request began to be waited for.
async fn connection<I, S, B>(stream: I, since: Instant, service: S, limits: Limits, tasks: Tasks)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<hyper::Request<Incoming>, Response = hyper::Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: hyper::body::Body<Data: Send, Error: Into<BoxError>> + Unpin + Send + 'static,
{
    let pulse = Pulse::default();
    let service = {
        let pulse = pulse.clone();
        hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
            pulse.beat();
            let pulse = pulse.clone();
            // No async block: it would hold what answers twice, and each request is moved with it.
            service.clone().call(request).map_ok(move |answer| answer.map(|body| Beating { body, pulse }))
        })
    };
    // Its own token: the one of all tasks has a lock that every connection would take with every request.
    let stopping = tasks.stopping().child_token();
    let mut streams = Streams::default();
    let builder = builder(&limits, streams.arrivals.clone());
    let io = TokioIo::new(Patient::new(stream, limits.request_timeout, pulse.clone()));
    let mut serving = std::pin::pin!(builder.serve_connection_with_upgrades(io, service));
    let patience = tokio::select! {
        biased;
        // A client that goes away or talks nonsense is its own affair.
        _ = streams.drive(serving.as_mut()) => return,
        () = pulse.ends(since, &limits) => limits.request_timeout,
        () = stopping.cancelled() => limits.drain_timeout,
    };
    if !pulse.has_begun() && !stopping.is_cancelled() {
        return;
    }
    // In HTTP/2 the client hears of it, and a request that was on its way is answered still.
    serving.as_mut().graceful_shutdown();
    if tokio::time::timeout(patience, streams.drive(serving)).await.is_err() && stopping.is_cancelled() {
        tracing::warn!("A connection was cut: its request did not end within shutdown.drain_timeout.");
    }
}

fn builder(limits: &Limits, arrivals: Arrivals) -> Builder<Arrivals> {
    let mut builder = Builder::new(arrivals);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(64 * 1024)
        // Answers are small: one buffer costs a copy, and several of them more of the kernel's time.
        .writev(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(256)
        .max_header_list_size(32 * 1024)
        .max_pending_accept_reset_streams(32)
        .keep_alive_interval(limits.header_timeout)
        .keep_alive_timeout(limits.header_timeout);
    builder
}

async fn unknown_route(method: Method, uri: Uri) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "unknown_route",
        format!("there is no {method} {}; see /docs for what there is", uri.path()),
    )
}

async fn wrong_method(method: Method, uri: Uri) -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        format!("{} does not take {method}; see /docs", uri.path()),
    )
}
