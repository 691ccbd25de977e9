//! One request and its answer over one connection, of either version of HTTP.
//!
//! HTTP/1.1 is in a file of its own. HTTP/2 connections are shared, so a small crew of tasks drives each of them; the crew ends
//! with the last holder.

use std::{
    future::Future,
    io,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http2},
    rt::Executor,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::{
    Call, CallError, Phase,
    connect::{Opened, Progress},
    http1::Http1,
    metrics,
    wire::{self, Meter},
};

/// Of the answer's body this much is kept ..
const KEPT: usize = 16 << 10;
/// .. and this much is read before the connection is given up instead of used again.
const READ: usize = 64 << 10;
const HTTP2_PING: Duration = Duration::from_secs(10);

pub(super) enum Connection {
    Http1(Box<Http1>),
    Http2(Http2),
}

/// As many exchanges as the receiver allows.
#[derive(Clone)]
pub(super) struct Http2 {
    sender: http2::SendRequest<Full<Bytes>>,
    crew: Arc<Mutex<JoinSet<()>>>,
    meter: Arc<Meter>,
}

pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) is_truncated: bool,
}

/// The body of an answer, as far as it was read and is kept.
#[derive(Default)]
pub(super) struct Body {
    kept: Vec<u8>,
    seen: usize,
    pub(super) is_whole: bool,
}

/// No answer, and whether the receiver can have seen the request.
pub(super) struct Failure {
    pub(super) error: CallError,
    /// The request was never sent, or the receiver said that it did not take it.
    pub(super) is_unsent: bool,
    /// The connection ended and not one byte had come for this request.
    pub(super) is_silent: bool,
}

impl Connection {
    pub(super) async fn start(opened: Opened) -> Result<Connection, CallError> {
        let Opened { stream, meter, is_http2 } = opened;
        if !is_http2 {
            return Ok(Connection::Http1(Box::new(Http1::new(stream, meter))));
        }
        let crew = Arc::new(Mutex::new(JoinSet::new()));
        let mut builder = http2::Builder::new(Recruiter(Arc::downgrade(&crew)));
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(u32::try_from(READ).ok())
            .initial_connection_window_size(1 << 20)
            .max_header_list_size(32 << 10)
            .max_send_buf_size(64 << 10)
            .keep_alive_interval(HTTP2_PING)
            .keep_alive_timeout(HTTP2_PING);
        let (sender, driver) =
            builder.handshake(TokioIo::new(stream)).await.map_err(|error| CallError::Protocol(error.into()))?;
        crew.lock().spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!(%error, "An HTTP/2 connection ended.");
            }
        });
        Ok(Connection::Http2(Http2 { sender, crew, meter }))
    }
}

impl Body {
    pub(super) fn add(&mut self, data: &[u8]) {
        self.seen += data.len();
        self.kept.extend_from_slice(&data[..data.len().min(KEPT - self.kept.len())]);
    }

    /// What else comes is not worth the connection.
    pub(super) fn is_enough(&self) -> bool {
        self.seen > READ
    }

    pub(super) fn into_reply(self, status: StatusCode, headers: HeaderMap) -> Reply {
        let is_truncated = !self.is_whole || self.seen > self.kept.len();
        Reply { status, headers, body: self.kept.into(), is_truncated }
    }
}

impl Failure {
    pub(super) fn new(
        error: Box<dyn std::error::Error + Send + Sync>,
        is_unsent: bool,
        is_silent: bool,
        is_closed: bool,
        meter: &Meter,
    ) -> Failure {
        let error = match meter.tls_error() {
            Some(error) => CallError::Tls(error),
            None if is_closed => CallError::ConnectionClosed,
            None => CallError::Protocol(error),
        };
        Failure { error, is_unsent, is_silent: is_silent && is_closed }
    }

    /// May the call go over another connection? What the receiver may have seen goes out once more, and no more than that.
    pub(super) fn allows_another(&self, is_resent: &mut bool) -> bool {
        let is_second = self.is_silent && !self.is_unsent && !*is_resent;
        if is_second {
            *is_resent = true;
            ::metrics::counter!(metrics::RESENT).increment(1);
        }
        self.is_unsent || is_second
    }
}

impl Http2 {
    pub(super) fn is_usable(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Beside the pool's own.
    pub(super) fn holders(&self) -> usize {
        Arc::strong_count(&self.crew) - 1
    }

    pub(super) async fn exchange(self, call: &Call<'_>, progress: &Progress) -> Result<Reply, Failure> {
        // The others' answers come over the same wire.
        self.meter.allow((wire::HEAD + wire::BODY) * self.holders().max(1) as u64);
        let Http2 { mut sender, crew: _crew, meter } = self;
        let sending = sender.try_send_request(request(call));
        // A request that slips into the queue of a connection that is just ending is given back when the last sender is gone:
        // whoever held on to one would wait for its own deadline.
        drop(sender);
        let response = sending.await.map_err(|refusal| failure(refusal, &meter))?;
        progress.enter(Phase::Body);
        Ok(read(response).await)
    }
}

/// Puts HTTP/2's own tasks into the crew of their connection.
#[derive(Clone)]
struct Recruiter(Weak<Mutex<JoinSet<()>>>);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Recruiter {
    fn execute(&self, task: F) {
        if let Some(crew) = self.0.upgrade() {
            let mut crew = crew.lock();
            while crew.try_join_next().is_some() {}
            crew.spawn(async move { drop(task.await) });
        }
    }
}

fn request(call: &Call<'_>) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(call.body.clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = call.target.uri.clone();
    for (name, value) in call.headers {
        request.headers_mut().append(name, value.clone());
    }
    request
}

/// A body that breaks off is an answer all the same: its status has said what happened.
async fn read(response: Response<Incoming>) -> Reply {
    let (head, mut incoming) = response.into_parts();
    let mut body = Body::default();
    while !body.is_enough() {
        match incoming.frame().await {
            None => {
                body.is_whole = true;
                break;
            }
            Some(Err(_)) => break,
            Some(Ok(frame)) => frame.data_ref().into_iter().for_each(|data| body.add(data)),
        }
    }
    body.into_reply(head.status, head.headers)
}

/// Others' answers may have come over the connection, and nothing of this one.
fn failure(mut refusal: TrySendError<Request<Full<Bytes>>>, meter: &Meter) -> Failure {
    let was_returned = refusal.take_message().is_some();
    let error = refusal.into_error();
    let (is_unsent, is_closed) = (was_returned || is_untaken(&error), is_closed(&error));
    Failure::new(error.into(), is_unsent, true, is_closed, meter)
}

fn is_closed(error: &hyper::Error) -> bool {
    error.is_incomplete_message()
        || error.is_closed()
        || error.is_canceled()
        // Of a request that waited for its place on the connection when that ended; no other fault of a user occurs here.
        || error.is_user()
        || source::<io::Error>(error).is_some_and(is_end)
        || source::<h2::Error>(error).and_then(h2::Error::get_io).is_some_and(is_end)
}

/// Is it the connection that ended?
pub(super) fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | UnexpectedEof)
}

/// HTTP/2 receivers say which requests they did not begin: those may be sent again.
fn is_untaken(error: &hyper::Error) -> bool {
    source::<h2::Error>(error).is_some_and(|error| {
        error.is_remote()
            && (error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR)
                || error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM))
    })
}

fn source<E: std::error::Error + 'static>(error: &hyper::Error) -> Option<&E> {
    std::iter::successors(std::error::Error::source(error), |error| error.source())
        .find_map(|error| error.downcast_ref())
}
