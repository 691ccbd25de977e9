//! The socket, and a limit on what may be read from it.
//!
//! The budget is below TLS and HTTP, so it holds whatever a receiver invents: endless headers, a flood of `1xx`,
//! session tickets, frames nobody asked for. It is renewed for every exchange, and again for its body.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

/// For the TLS handshake, and for what comes before an answer's body: `1xx` answers and the head itself.
pub(super) const HEAD: u64 = 32 << 10;
/// For the body as far as it is read, and what is read ahead.
pub(super) const BODY: u64 = 96 << 10;

pub(super) type Stream = Either<Wire, Box<TlsStream<Wire>>>;

/// Bytes read so far, and how far reading may go.
#[derive(Debug, Default)]
pub(super) struct Meter {
    read: AtomicU64,
    limit: AtomicU64,
}

impl Meter {
    /// From here on this much may be read. Gives the count so far, which tells later whether anything came.
    pub(super) fn allow(&self, budget: u64) -> u64 {
        let read = self.read();
        self.limit.store(read + budget, Ordering::Relaxed);
        read
    }

    pub(super) fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }
}

pub(super) struct Wire {
    socket: TcpStream,
    meter: Arc<Meter>,
}

impl Wire {
    pub(super) fn new(socket: TcpStream) -> (Wire, Arc<Meter>) {
        let meter = Arc::new(Meter::default());
        meter.allow(HEAD);
        (Wire { socket, meter: Arc::clone(&meter) }, meter)
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.meter.read() >= this.meter.limit.load(Ordering::Relaxed) {
            return Poll::Ready(Err(io::Error::other("the answer is longer than is read")));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.socket).poll_read(context, buffer);
        this.meter.read.fetch_add((buffer.filled().len() - before) as u64, Ordering::Relaxed);
        polled
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(context)
    }
}
