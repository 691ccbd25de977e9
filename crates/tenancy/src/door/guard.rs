//! The door as a layer. Who is known goes straight through; only who is not waits for the database.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    extract::Request,
    response::{IntoResponse, Response},
};
use futures_util::future::Either;
use tower::{Layer, Service};

use super::{Door, Recalled, Shown};

impl<S> Layer<S> for Door {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { inner, door: self.clone() }
    }
}

/// A route behind the door.
#[derive(Clone)]
pub struct Guarded<S> {
    inner: S,
    door: Door,
}

impl<S> Service<Request> for Guarded<S>
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Either<S::Future, Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        if let Ok(Recalled::Caller(caller)) = self.door.recall_sender(&shown(&request)) {
            request.extensions_mut().insert(caller);
            return Either::Left(self.inner.call(request));
        }
        let (door, mut inner) = (self.door.clone(), self.inner.clone());
        Either::Right(Box::pin(async move {
            match door.sender(&shown(&request)).await {
                Ok(caller) => {
                    request.extensions_mut().insert(caller);
                    inner.call(request).await
                }
                Err(problem) => Ok(problem.into_response()),
            }
        }))
    }
}

fn shown(request: &Request) -> Shown<'_> {
    Shown::by_headers(request.headers(), request.uri().authority())
}
