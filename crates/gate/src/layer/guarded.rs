//! The one service behind every layer: ask, call, report.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use tower::Service;

use super::{Error, Refused};
use crate::Key;

/// A primitive that stands before a call. Closed: implemented by the layers of this crate.
pub trait Guard<Request, Response, Failure>: Clone + Send + 'static {
    /// Held while the call is under way; its drop must undo it.
    type Held: Send + 'static;

    fn key(&self, request: &Request) -> Option<Key>;
    fn enter(&self, key: Key) -> impl Future<Output = Result<Self::Held, Refused>> + Send;
    fn leave(
        &self,
        held: Self::Held,
        result: &Result<Response, Failure>,
    ) -> impl Future<Output = ()> + Send + use<Self, Request, Response, Failure>;
}

/// A service behind a guard.
#[derive(Clone, Debug)]
pub struct Guarded<S, G> {
    inner: S,
    guard: G,
}

impl<S, G> Guarded<S, G> {
    pub(super) fn new(inner: S, guard: G) -> Self {
        Guarded { inner, guard }
    }
}

impl<S, G, Request> Service<Request> for Guarded<S, G>
where
    S: Service<Request> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: Send,
    S::Error: Send,
    G: Guard<Request, S::Response, S::Error>,
    Request: Send + 'static,
{
    type Response = S::Response;
    type Error = Error<S::Error>;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, Error<S::Error>>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(Error::Inner)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        // The clone left behind was never polled; the one that was found ready must make the call.
        let clone = self.inner.clone();
        let mut ready = mem::replace(&mut self.inner, clone);
        let guard = self.guard.clone();
        Box::pin(async move {
            let Some(key) = guard.key(&request) else {
                return ready.call(request).await.map_err(Error::Inner);
            };
            let held = guard.enter(key).await?;
            let result = ready.call(request).await;
            guard.leave(held, &result).await;
            result.map_err(Error::Inner)
        })
    }
}
