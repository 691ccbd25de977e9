//! A lane before the ordinary server, for small questions that are asked very often.
//!
//! A connection begins here. Whole and plain requests that the [`Lane`] knows are answered in place; with the first bytes
//! that are anything else the connection goes to the ordinary server for good, those bytes unread. So whatever is wrong,
//! rare or large is judged in one place only, and not here. The parser is the ordinary server's own: both see the same
//! request in the same bytes.

mod plain;

use std::{future::Future, io::Cursor, time::SystemTime};

use axum::http::{Method, StatusCode};
use bytes::{Buf, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

pub use self::plain::Plain;
use super::{
    Limits,
    guard::{Meter, within},
};
use crate::{problem::Problem, telemetry};

/// Bytes of requests that are read at a time. What is longer is nothing for a lane.
const USUAL_READ: usize = 4 * 1024;

/// Answers the requests of some routes before the router is asked.
pub trait Lane: Send + Sync + 'static {
    /// The routes, as metrics name them.
    const ROUTES: &'static [&'static str];

    /// Answers the request exactly as its route does, and says which of [`Lane::ROUTES`] that is. `None` if the route
    /// shall: then nothing was counted, changed or written.
    fn answer(&self, request: &Plain<'_>, reply: &mut Reply) -> impl Future<Output = Option<usize>> + Send;
}

/// What a lane answers.
#[derive(Default)]
pub struct Reply {
    pub status: StatusCode,
    /// Each with its end of line.
    pub header_lines: BytesMut,
    pub body: BytesMut,
}

impl Reply {
    fn clear(&mut self) {
        self.header_lines.clear();
        self.body.clear();
    }

    /// For a problem that was met on the way, when the route can be asked no more.
    pub fn problem(&mut self, problem: &Problem) {
        self.clear();
        self.status = problem.status();
        self.header_lines.extend_from_slice(b"content-type: application/problem+json\r\n");
        if let Some(seconds) = problem.retry_after() {
            self.header_lines.extend_from_slice(format!("retry-after: {seconds}\r\n").as_bytes());
        }
        self.body.extend_from_slice(&serde_json::to_vec(problem).unwrap_or_default());
    }

    fn write(&self, out: &mut BytesMut, date: &str, is_last: bool) {
        match self.status {
            StatusCode::OK => out.extend_from_slice(b"HTTP/1.1 200 OK\r\n"),
            status => {
                let reason = status.canonical_reason().unwrap_or_default();
                out.extend_from_slice(format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).as_bytes());
            }
        }
        out.extend_from_slice(&self.header_lines);
        out.extend_from_slice(b"content-length: ");
        out.extend_from_slice(self.body.len().to_string().as_bytes());
        out.extend_from_slice(if is_last { b"\r\nconnection: close\r\ndate: " } else { b"\r\ndate: " });
        out.extend_from_slice(date.as_bytes());
        out.extend_from_slice(b"\r\n\r\n");
        out.extend_from_slice(&self.body);
    }
}

/// Where the connections of a listener with a lane begin.
pub(super) struct Entry<L> {
    lane: L,
    limits: Limits,
    /// One for each route.
    meters: Vec<Meter>,
}

/// How far the requests of one read came.
enum Turn {
    GoOn,
    /// The rest is for the ordinary server.
    HandOver,
    Close,
}

impl<L: Lane> Entry<L> {
    pub(super) fn new(lane: L, limits: Limits) -> Self {
        let meters = L::ROUTES.iter().map(|route| Meter::new(&Method::POST, route)).collect();
        Entry { lane, limits, meters }
    }

    /// Serves a connection for as long as the lane can. What is left of it has the bytes that were not answered before
    /// it, and the time since which they are waited for; `None` if it has ended.
    pub(super) async fn serve(
        &self,
        mut stream: TcpStream,
        stopping: CancellationToken,
    ) -> Option<(impl AsyncRead + AsyncWrite + use<L>, Instant)> {
        let mut connection = Connection::default();
        // Spans are made by the ordinary server.
        let waiting_since = match telemetry::notes_requests() {
            true => Instant::now(),
            false => self.run(&mut connection, &mut stream, &stopping).await?,
        };
        let (reader, writer) = stream.into_split();
        let reader = AsyncReadExt::chain(Cursor::new(connection.input), reader);
        Some((tokio::io::join(reader, writer), waiting_since))
    }

    /// `None` if the connection has ended.
    async fn run(
        &self,
        connection: &mut Connection,
        stream: &mut TcpStream,
        stopping: &CancellationToken,
    ) -> Option<Instant> {
        let Limits { header_timeout, request_timeout, .. } = self.limits;
        let mut waiting_since = Instant::now();
        let mut stopped = std::pin::pin!(stopping.cancelled());
        let mut timer = std::pin::pin!(tokio::time::sleep_until(waiting_since + header_timeout));
        loop {
            connection.input.reserve(USUAL_READ);
            let read = loop {
                tokio::select! {
                    biased;
                    read = stream.read_buf(&mut connection.input) => break read,
                    // Set again only when it rings: to set it with every request would cost more than the rest of this.
                    () = timer.as_mut() => {
                        if waiting_since.elapsed() >= header_timeout {
                            return None;
                        }
                        timer.as_mut().reset(waiting_since + header_timeout);
                    }
                    () = stopped.as_mut() => return None,
                }
            };
            if !matches!(read, Ok(1..)) {
                return None;
            }
            let turn = connection.turn(self, stopping).await;
            let sent = timeout(request_timeout, stream.write_all(&connection.out)).await;
            if !connection.out.is_empty() {
                connection.out.clear();
                waiting_since = Instant::now();
            }
            match (turn, sent) {
                (Turn::GoOn, Ok(Ok(()))) => {}
                (Turn::HandOver, Ok(Ok(()))) => return Some(waiting_since),
                _ => return None,
            }
        }
    }
}

/// What a connection in the lane holds.
#[derive(Default)]
struct Connection {
    input: BytesMut,
    out: BytesMut,
    reply: Reply,
    date: Date,
}

impl Connection {
    /// Answers what has arrived, for as long as it is for the lane.
    async fn turn<L: Lane>(&mut self, entry: &Entry<L>, stopping: &CancellationToken) -> Turn {
        while !self.input.is_empty() {
            let mut headers = plain::NO_HEADERS;
            let Some((request, length)) = Plain::read(&self.input, &mut headers, entry.limits.max_body) else {
                return Turn::HandOver;
            };
            let started = Instant::now();
            self.reply.clear();
            let deadline = entry.limits.request_timeout;
            let route = match within(started + deadline, entry.lane.answer(&request, &mut self.reply)).await {
                Ok(Some(route)) => route,
                Ok(None) => return Turn::HandOver,
                // Nobody knows what was counted, so the route cannot be asked any more.
                Err(cut) => {
                    self.reply.problem(&cut.problem(deadline));
                    L::ROUTES.iter().position(|route| request.target().starts_with(route)).unwrap_or_default()
                }
            };
            let now = Instant::now();
            entry.meters[route].record(self.reply.status, now - started);
            let is_last = stopping.is_cancelled();
            self.reply.write(&mut self.out, self.date.at(now), is_last);
            if is_last {
                return Turn::Close;
            }
            self.input.advance(length);
        }
        Turn::GoOn
    }
}

/// The date of answers, written once a second.
#[derive(Default)]
struct Date {
    text: String,
    until: Option<Instant>,
}

impl Date {
    fn at(&mut self, now: Instant) -> &str {
        if self.until.is_none_or(|until| now >= until) {
            #[expect(clippy::disallowed_methods, reason = "a date is for the reader; nothing is decided by it")]
            let wall = SystemTime::now();
            let into_second = wall.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
            self.text = httpdate::fmt_http_date(wall);
            self.until = Some(now + std::time::Duration::from_nanos(1_000_000_000 - u64::from(into_second)));
        }
        &self.text
    }
}
