//! The socket, and a limit on what may be read from it.
//!
//! The budget is below TLS and HTTP, so it holds whatever a receiver invents: endless headers, a flood of `1xx`,
//! session tickets, frames nobody asked for. It is renewed for every exchange, and again for its body.

use std::{
    io,
    os::fd::AsFd,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

/// For the TLS handshake, and for what comes before an answer's body: `1xx` answers and the head itself.
pub(super) const HEAD: u64 = 32 << 10;
/// For the body as far as it is read, and what is read ahead.
pub(super) const BODY: u64 = 96 << 10;

pub(super) type Stream = Either<Wire, Box<Sealed>>;

/// Bytes read so far, and how far reading may go.
#[derive(Debug, Default)]
pub(super) struct Meter {
    read: AtomicU64,
    limit: AtomicU64,
    tls_error: OnceLock<String>,
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

    /// What TLS found wrong after the handshake, such as an alert: in TLS 1.3 a receiver looks at the caller's certificate
    /// only then, and HTTP/2 tells those who wait no more than that the connection is gone.
    pub(super) fn tls_error(&self) -> Option<io::Error> {
        self.tls_error.get().map(|text| io::Error::new(io::ErrorKind::InvalidData, text.as_str()))
    }
}

/// TLS over the socket, after its handshake.
pub(super) struct Sealed {
    stream: TlsStream<Wire>,
    meter: Arc<Meter>,
}

impl Sealed {
    pub(super) fn new(stream: TlsStream<Wire>, meter: &Arc<Meter>) -> Sealed {
        Sealed { stream, meter: Arc::clone(meter) }
    }

    /// Mistakes of TLS have this kind, and no socket has it.
    fn watch<T>(&self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &polled
            && error.kind() == io::ErrorKind::InvalidData
        {
            self.meter.tls_error.get_or_init(|| error.to_string());
        }
        polled
    }

    /// A receiver that closes says why before: where a write fails, its last words wait to be read.
    fn watch_write<T>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(_)) = &polled {
            let words = Pin::new(&mut self.stream).poll_fill_buf(context).map_ok(drop);
            drop(self.watch(words));
        }
        self.watch(polled)
    }
}

impl AsyncRead for Sealed {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_read(context, buffer);
        this.watch(polled)
    }
}

impl AsyncWrite for Sealed {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.watch_write(context, polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write_vectored(context, parts);
        this.watch_write(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_flush(context);
        this.watch_write(context, polled)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

pub(super) struct Wire {
    socket: TcpStream,
    meter: Arc<Meter>,
    /// A write has failed.
    is_broken: bool,
}

impl Wire {
    pub(super) fn new(socket: TcpStream) -> (Wire, Arc<Meter>) {
        let meter = Arc::new(Meter::default());
        meter.allow(HEAD);
        (Wire { socket, meter: Arc::clone(&meter), is_broken: false }, meter)
    }

    fn note(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.is_broken |= matches!(written, Poll::Ready(Err(_)));
        written
    }

    /// The kernel has what came before the connection broke, also where the runtime has not heard of it yet.
    fn read_what_is_there(&self, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut socket = std::net::TcpStream::from(self.socket.as_fd().try_clone_to_owned()?);
        match io::Read::read(&mut socket, buffer.initialize_unfilled()) {
            Ok(read) => buffer.advance(read),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.meter.read() >= this.meter.limit.load(Ordering::Relaxed) {
            return Poll::Ready(Err(io::Error::other("the answer is longer than is read")));
        }
        let before = buffer.filled().len();
        let mut polled = Pin::new(&mut this.socket).poll_read(context, buffer);
        if polled.is_pending() && this.is_broken {
            polled = this.read_what_is_there(buffer);
        }
        this.meter.read.fetch_add((buffer.filled().len() - before) as u64, Ordering::Relaxed);
        polled
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.socket).poll_write(context, bytes);
        this.note(polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.socket).poll_write_vectored(context, parts);
        this.note(polled)
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
