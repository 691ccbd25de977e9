//! A connection whose client takes what it is sent: a write that goes no further for too long is its end.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

use super::{CONNECTIONS_STALLED, pulse::Pulse};

/// Bytes of a write: pings and what answers them take less, parts of an answer more.
const PART: usize = 64;

/// However slow a client is, it lives as long as some of each write is taken within `patience`.
pub(super) struct Patient<I> {
    io: I,
    patience: Duration,
    pulse: Pulse,
    /// Only while a write waits: most never do.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<I: Unpin> Patient<I> {
    pub(super) fn new(io: I, patience: Duration, pulse: Pulse) -> Self {
        Patient { io, patience, pulse, waiting: None }
    }

    fn in_time(&mut self, context: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = written {
            self.waiting = None;
            if written.as_ref().is_ok_and(|&written| written > PART) {
                self.pulse.beat();
            }
            return Poll::Ready(written);
        }
        let patience = self.patience;
        ready!(self.waiting.get_or_insert_with(|| Box::pin(sleep(patience))).as_mut().poll(context));
        metrics::counter!(CONNECTIONS_STALLED).increment(1);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Patient<I> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buf)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Patient<I> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, buf);
        self.in_time(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, bufs);
        self.in_time(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
