//! Whether anything moves on a connection: requests that arrive, parts of answers, and what its client takes of them.
//!
//! Bytes alone would not say it: HTTP/2 sends pings over a connection that nobody uses, and answers come by themselves.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, sleep, sleep_until};

use super::Limits;

/// How often something has moved. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Pulse(Arc<AtomicUsize>);

impl Pulse {
    pub(super) fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn has_begun(&self) -> bool {
        self.count() > 0
    }

    /// Waits until nothing has moved for too long. `since` is when the first request began to be waited for.
    pub(super) async fn ends(&self, since: Instant, limits: &Limits) {
        sleep_until(since + limits.header_timeout).await;
        if !self.has_begun() {
            return;
        }
        // Nothing moves while a request is worked on, either.
        let silence = limits.idle_timeout.max(limits.request_timeout);
        loop {
            let before = self.count();
            sleep(silence).await;
            if self.count() == before {
                return;
            }
        }
    }
}

/// The body of an answer; each part that is asked for is a beat.
pub(super) struct Beating<B> {
    pub(super) body: B,
    pub(super) pulse: Pulse,
}

impl<B: Body + Unpin> Body for Beating<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        self.pulse.beat();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
