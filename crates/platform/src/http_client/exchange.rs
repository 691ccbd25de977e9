//! One request and its answer over one connection.
//!
//! An HTTP/1.1 connection is driven by the call that uses it, in the same task: a call that is dropped takes its socket
//! with it, and nothing runs on behalf of a receiver that nobody waits for. HTTP/2 connections are shared, so a small
//! crew of tasks drives each of them; the crew ends with the last holder.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{Arc, Weak},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version, header::HOST};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http1, http2},
    rt::Executor,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::task::{JoinSet, coop::unconstrained};

use super::{
    Call, CallError, Phase,
    connect::{Opened, Progress},
    wire::{self, Meter, Stream},
};

/// Of the answer's body this much is kept ..
const KEPT: usize = 16 << 10;
/// .. and this much is read before the connection is given up instead of used again.
const READ: usize = 64 << 10;
const LONGEST_HEAD: usize = 32 << 10;
const HTTP2_PING: Duration = Duration::from_secs(10);

type Io = TokioIo<Stream>;
type Body = Full<Bytes>;

pub(super) enum Connection {
    Http1(Box<Http1>),
    Http2(Http2),
}

/// One exchange at a time.
pub(super) struct Http1 {
    sender: http1::SendRequest<Body>,
    /// Absent once it has ended.
    driver: Option<http1::Connection<Io, Body>>,
    meter: Arc<Meter>,
}

/// As many exchanges as the receiver allows.
#[derive(Clone)]
pub(super) struct Http2 {
    sender: http2::SendRequest<Body>,
    crew: Arc<Mutex<JoinSet<()>>>,
    meter: Arc<Meter>,
}

pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) is_truncated: bool,
    /// The body was read to its end, so the connection may serve another exchange.
    is_clean: bool,
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
            let mut builder = http1::Builder::new();
            // A hundred headers at most is its default; said again, it would clear room for them at every answer.
            builder.max_buf_size(LONGEST_HEAD);
            let (sender, driver) = builder.handshake(TokioIo::new(stream)).await.map_err(CallError::Protocol)?;
            return Ok(Connection::Http1(Box::new(Http1 { sender, driver: Some(driver), meter })));
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
        let (sender, driver) = builder.handshake(TokioIo::new(stream)).await.map_err(CallError::Protocol)?;
        crew.lock().spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!(%error, "An HTTP/2 connection ended.");
            }
        });
        Ok(Connection::Http2(Http2 { sender, crew, meter }))
    }
}

impl Http1 {
    /// Looks at the socket: has the receiver closed it, or sent something nobody asked for?
    ///
    /// Nobody is to be woken by an idle connection; a waker left in it would keep the memory of its last task alive.
    pub(super) fn is_usable(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        if let Some(driver) = &mut self.driver
            && Pin::new(driver).poll(&mut context).is_ready()
        {
            self.driver = None;
        }
        self.driver.is_some() && matches!(self.sender.poll_ready(&mut context), Poll::Ready(Ok(())))
    }

    /// Leaves the connection usable only if the answer was read to its end.
    pub(super) async fn exchange(&mut self, call: &Call<'_>, progress: &Progress) -> Result<Reply, Failure> {
        let read_before = self.meter.allow(wire::HEAD);
        let Http1 { sender, driver, meter } = self;
        let sending = sender.try_send_request(request(call, Version::HTTP_11));
        let response = drive(driver, sending).await.map_err(|refusal| {
            let is_silent = meter.read() == read_before;
            failure(refusal, is_silent, meter)
        })?;
        progress.enter(Phase::Body);
        meter.allow(wire::BODY);
        let reply = drive(driver, read(response)).await;
        if !reply.is_clean {
            *driver = None;
        }
        Ok(reply)
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
        let read_before = self.meter.allow((wire::HEAD + wire::BODY) * self.holders().max(1) as u64);
        let Http2 { mut sender, crew: _crew, meter } = self;
        let sending = sender.try_send_request(request(call, Version::HTTP_2));
        // A request that slips into the queue of a connection that is just ending is given back when the last sender is gone:
        // whoever held on to one would wait for its own deadline.
        drop(sender);
        let response = sending.await.map_err(|refusal| {
            let is_silent = meter.read() == read_before;
            failure(refusal, is_silent, &meter)
        })?;
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

/// Does `work` while the connection turns. When the connection ends, so does what waits for it.
///
/// Work gets on by the connection alone, so only the connection wakes the task: work is asked again after it. Tokio's
/// budget would make work wait for a wake that nobody hears; it is spent by the connection, which is heard.
async fn drive<T>(driver: &mut Option<http1::Connection<Io, Body>>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(unconstrained(work));
    poll_fn(|context| {
        let mut unheard = Context::from_waker(Waker::noop());
        if let Poll::Ready(done) = work.as_mut().poll(&mut unheard) {
            return Poll::Ready(done);
        }
        if let Some(connection) = driver
            && Pin::new(connection).poll(context).is_ready()
        {
            *driver = None;
        }
        work.as_mut().poll(&mut unheard)
    })
    .await
}

fn request(call: &Call<'_>, version: Version) -> Request<Body> {
    let mut request = Request::new(Full::new(call.body.clone()));
    *request.method_mut() = Method::POST;
    let headers = request.headers_mut();
    if version == Version::HTTP_11 {
        headers.insert(HOST, call.target.host_header.clone());
    }
    for (name, value) in call.headers {
        headers.append(name, value.clone());
    }
    *request.uri_mut() =
        if version == Version::HTTP_11 { call.target.path.clone().into() } else { call.target.uri.clone() };
    request
}

/// A body that breaks off is an answer all the same: its status has said what happened.
async fn read(response: Response<Incoming>) -> Reply {
    let (head, mut body) = response.into_parts();
    let (mut kept, mut seen, mut is_clean) = (Vec::new(), 0, false);
    while seen <= READ {
        match body.frame().await {
            None => {
                is_clean = true;
                break;
            }
            Some(Err(_)) => break,
            Some(Ok(frame)) => {
                let Some(data) = frame.data_ref() else { continue };
                seen += data.len();
                kept.extend_from_slice(&data[..data.len().min(KEPT - kept.len())]);
            }
        }
    }
    let is_truncated = !is_clean || seen > kept.len();
    Reply { status: head.status, headers: head.headers, body: kept.into(), is_truncated, is_clean }
}

fn failure(mut refusal: TrySendError<Request<Body>>, is_silent: bool, meter: &Meter) -> Failure {
    let was_returned = refusal.take_message().is_some();
    let error = refusal.into_error();
    let is_unsent = was_returned || is_untaken(&error);
    let is_closed = is_closed(&error);
    let error = match meter.tls_error() {
        Some(error) => CallError::Tls(error),
        None if is_closed => CallError::ConnectionClosed,
        None => CallError::Protocol(error),
    };
    Failure { error, is_unsent, is_silent: is_silent && is_closed }
}

fn is_closed(error: &hyper::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof};
    let is_end = |error: &std::io::Error| {
        matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | UnexpectedEof)
    };
    error.is_incomplete_message()
        || error.is_closed()
        || error.is_canceled()
        || source::<std::io::Error>(error).is_some_and(is_end)
        || source::<h2::Error>(error).and_then(h2::Error::get_io).is_some_and(is_end)
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
