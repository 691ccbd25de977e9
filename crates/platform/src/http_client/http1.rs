//! HTTP/1.1: one request and its answer over one connection, in the task of the call.
//!
//! A call that is dropped takes its socket with it, and nothing runs on behalf of a receiver that nobody waits for. An answer may
//! come before the request is sent: both go on together. The connection may serve another exchange only if the request
//! was sent, the answer read to its end, and nothing came behind it.

mod framing;

use std::{
    future::poll_fn,
    io::{self, IoSlice, Write},
    mem::MaybeUninit,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use httparse::{ParserConfig, Status};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

use self::framing::{Framing, Step, stays_open};
use super::{
    Call, Phase,
    connect::Progress,
    exchange::{Body, Failure, Reply, is_end},
    wire::{self, Meter, Stream},
};

const LONGEST_HEAD: usize = 32 << 10;
const MOST_HEADERS: usize = 100;
/// More than the usual answer has.
const ROOM: usize = 2 << 10;

/// One exchange at a time.
pub(super) struct Http1 {
    stream: Stream,
    meter: Arc<Meter>,
    /// The last exchange has left nothing behind.
    is_clean: bool,
}

/// A request on its way.
struct Sending<'a> {
    stream: &'a mut Stream,
    head: Vec<u8>,
    body: &'a Bytes,
    written: usize,
    is_sent: bool,
    broke: Option<io::Error>,
    /// So many bytes of an answer, as HTTP has them: what TLS says as it closes is none.
    heard: usize,
}

/// Why there is no answer.
enum Trouble {
    Io(io::Error),
    /// The receiver closed.
    Ended,
    Wrong(Box<dyn std::error::Error + Send + Sync>),
}

struct Head {
    status: StatusCode,
    is_http10: bool,
    headers: HeaderMap,
}

impl Http1 {
    pub(super) fn new(stream: Stream, meter: Arc<Meter>) -> Http1 {
        Http1 { stream, meter, is_clean: true }
    }

    /// Looks at the socket: has the receiver closed it, or sent something nobody asked for?
    ///
    /// Nobody is to be woken by an idle connection; a waker left in it would keep the memory of its last task alive.
    pub(super) fn is_usable(&mut self) -> bool {
        let (mut context, mut byte) = (Context::from_waker(Waker::noop()), [0]);
        self.is_clean && Pin::new(&mut self.stream).poll_read(&mut context, &mut ReadBuf::new(&mut byte)).is_pending()
    }

    pub(super) async fn exchange(&mut self, call: &Call<'_>, progress: &Progress) -> Result<Reply, Failure> {
        self.is_clean = false;
        let read_before = self.meter.allow(wire::HEAD);
        let mut sending = Sending::new(&mut self.stream, call);
        let mut input = BytesMut::with_capacity(ROOM);
        let answered = sending.head(&mut input).await;
        let (Head { status, is_http10, headers }, framing) = answered.map_err(|trouble| {
            let is_unsent = sending.written == 0;
            let is_silent =
                sending.heard == 0 && (matches!(trouble, Trouble::Ended) || self.meter.read() == read_before);
            trouble.into_failure(is_unsent, is_silent, &self.meter)
        })?;
        progress.enter(Phase::Body);
        self.meter.allow(wire::BODY);
        let body = sending.body(framing, &mut input).await;
        let is_over = sending.is_sent && body.is_whole && input.is_empty();
        self.is_clean = is_over && status != StatusCode::SWITCHING_PROTOCOLS && stays_open(is_http10, &headers);
        Ok(body.into_reply(status, headers))
    }
}

impl<'a> Sending<'a> {
    fn new(stream: &'a mut Stream, call: &'a Call<'_>) -> Sending<'a> {
        let headers: usize = call.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        let path = call.target.path.as_str();
        let mut head = Vec::with_capacity(path.len() + call.target.host_header.len() + headers + 64);
        for part in [b"POST ", path.as_bytes(), b" HTTP/1.1\r\nhost: ", call.target.host_header.as_bytes()] {
            head.extend_from_slice(part);
        }
        for (name, value) in call.headers {
            for part in [b"\r\n", name.as_str().as_bytes(), b": ", value.as_bytes()] {
                head.extend_from_slice(part);
            }
        }
        write!(head, "\r\ncontent-length: {}\r\n\r\n", call.body.len()).expect("a vector takes everything");
        Sending { stream, head, body: &call.body, written: 0, is_sent: false, broke: None, heard: 0 }
    }

    /// Reads the head of the answer, behind those that only inform, and what it says of the body.
    async fn head(&mut self, input: &mut BytesMut) -> Result<(Head, Framing), Trouble> {
        loop {
            while let Some(head) = parse(input)? {
                if !head.status.is_informational() || head.status == StatusCode::SWITCHING_PROTOCOLS {
                    let framing = Framing::of(head.status, head.is_http10, &head.headers);
                    let framing = framing.ok_or_else(|| Trouble::Wrong("its body can be read in two ways".into()))?;
                    return Ok((head, framing));
                }
            }
            if input.len() >= LONGEST_HEAD {
                return Err(Trouble::Wrong("its head is too long".into()));
            }
            match self.more(input).await {
                Ok(0) => return Err(Trouble::Ended),
                Ok(_) => (),
                Err(error) => return Err(Trouble::Io(error)),
            }
        }
    }

    /// A body that breaks off is an answer all the same: its status has said what happened.
    async fn body(&mut self, mut framing: Framing, input: &mut BytesMut) -> Body {
        let mut body = Body::default();
        loop {
            match framing.take(input, |data| body.add(data)) {
                Step::End => {
                    body.is_whole = true;
                    return body;
                }
                Step::Broken => return body,
                Step::More if body.is_enough() => return body,
                Step::More => (),
            }
            match self.more(input).await {
                Ok(0) => {
                    body.is_whole = framing == Framing::UntilClose;
                    return body;
                }
                Ok(_) => (),
                Err(_) => return body,
            }
        }
    }

    /// Gets on with the request and reads some of the answer. 0: there is no more.
    async fn more(&mut self, input: &mut BytesMut) -> io::Result<usize> {
        input.reserve(ROOM);
        let read = poll_fn(|context| {
            self.send(context);
            let polled = poll_read_buf(Pin::new(&mut *self.stream), context, input);
            match self.broke.take_if(|_| polled.is_pending()) {
                // It said nothing before it went.
                Some(error) => Poll::Ready(Err(error)),
                None => polled,
            }
        })
        .await?;
        self.heard += read;
        Ok(read)
    }

    fn send(&mut self, context: &mut Context<'_>) {
        while !self.is_sent && self.broke.is_none() {
            let head = &self.head[self.written.min(self.head.len())..];
            let body = &self.body[self.written.saturating_sub(self.head.len())..];
            let stream = Pin::new(&mut *self.stream);
            let is_written = head.is_empty() && body.is_empty();
            let polled = match is_written {
                true => stream.poll_flush(context).map_ok(|()| 0),
                false => stream.poll_write_vectored(context, &[IoSlice::new(head), IoSlice::new(body)]),
            };
            match polled {
                Poll::Ready(Ok(0)) if !is_written => self.broke = Some(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => (self.written, self.is_sent) = (self.written + count, is_written),
                Poll::Ready(Err(error)) => self.broke = Some(error),
                Poll::Pending => return,
            }
        }
    }
}

/// Takes a head out of `input`, if one has come.
fn parse(input: &mut BytesMut) -> Result<Option<Head>, Trouble> {
    if input.is_empty() {
        return Ok(None);
    }
    let mut room = [const { MaybeUninit::uninit() }; MOST_HEADERS];
    let mut response = httparse::Response::new(&mut []);
    let parsed = ParserConfig::default().parse_response_with_uninit_headers(&mut response, input, &mut room);
    let Status::Complete(length) = parsed.map_err(|error| Trouble::Wrong(error.into()))? else { return Ok(None) };
    let is_http10 = response.version == Some(0);
    let status = StatusCode::from_u16(response.code.unwrap_or_default());
    let status = status.map_err(|error| Trouble::Wrong(error.into()))?;
    let mut headers = HeaderMap::with_capacity(response.headers.len());
    for header in &*response.headers {
        let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|error| Trouble::Wrong(error.into()))?;
        let value = HeaderValue::from_bytes(header.value).map_err(|error| Trouble::Wrong(error.into()))?;
        headers.append(name, value);
    }
    drop(input.split_to(length));
    Ok(Some(Head { status, is_http10, headers }))
}

impl Trouble {
    fn into_failure(self, is_unsent: bool, is_silent: bool, meter: &Meter) -> Failure {
        let (is_closed, error) = match self {
            Trouble::Ended => (true, io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Trouble::Io(error) => (is_end(&error), error.into()),
            Trouble::Wrong(error) => (false, error),
        };
        Failure::new(error, is_unsent, is_silent, is_closed, meter)
    }
}
