//! The requests of one HTTP/2 connection, answered where they arrived: in the connection's own task.
//!
//! A task for each request would cost more than most answers do, and every answer would wake the connection for itself. So
//! requests gather while the connection is read, each is begun right after, and what is answered by then leaves together, in
//! one write. Who has to wait holds up nobody.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use hyper::rt::Executor;
use parking_lot::Mutex;

type Stream = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where hyper leaves what it has accepted. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Arrivals(Arc<Mutex<Vec<Stream>>>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Arrivals {
    fn execute(&self, stream: F) {
        self.0.lock().push(Box::pin(stream));
    }
}

/// The requests of a connection.
#[derive(Default)]
pub(super) struct Streams {
    pub(super) arrivals: Arrivals,
    waiting: FuturesUnordered<Stream>,
}

impl Streams {
    /// The connection to its end, and what arrives on it.
    pub(super) async fn drive<C: Future>(&mut self, mut connection: Pin<&mut C>) -> C::Output {
        poll_fn(|context| {
            loop {
                let polled = connection.as_mut().poll(context);
                // What they have answered is sent when the connection is asked again.
                if polled.is_ready() || !self.poll(context) {
                    return polled;
                }
            }
        })
        .await
    }

    /// Has any of them answered?
    fn poll(&mut self, context: &mut Context<'_>) -> bool {
        let mut has_answered = false;
        for mut stream in std::mem::take(&mut *self.arrivals.0.lock()) {
            // Most need no place among those that wait. The others are asked again below, and then they know whom to wake.
            match stream.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(()) => has_answered = true,
                Poll::Pending => self.waiting.push(stream),
            }
        }
        while let Poll::Ready(Some(())) = self.waiting.poll_next_unpin(context) {
            has_answered = true;
        }
        has_answered
    }
}
