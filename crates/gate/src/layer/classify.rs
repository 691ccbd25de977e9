//! What a result says about the target.

use std::marker::PhantomData;

use crate::breaker::Outcome;

/// Turns a result into an outcome. A closure does so through `classify` of a layer.
pub trait Classify<Response, Failure>: Clone + Send + Sync + 'static {
    fn outcome(&self, result: &Result<Response, Failure>) -> Outcome;
}

/// Every `Err` is a failure, every `Ok` a success.
#[derive(Clone, Copy, Debug)]
pub struct ErrIsFailure;

impl<Response, Failure> Classify<Response, Failure> for ErrIsFailure {
    fn outcome(&self, result: &Result<Response, Failure>) -> Outcome {
        if result.is_ok() { Outcome::Success } else { Outcome::Failure }
    }
}

/// A closure that judges.
#[derive(Debug)]
pub struct By<C, Response, Failure> {
    judge: C,
    of: PhantomData<fn(Response, Failure)>,
}

impl<C, Response, Failure> By<C, Response, Failure> {
    pub(super) fn new(judge: C) -> Self {
        By { judge, of: PhantomData }
    }
}

impl<C: Clone, Response, Failure> Clone for By<C, Response, Failure> {
    fn clone(&self) -> Self {
        By::new(self.judge.clone())
    }
}

impl<C, Response: 'static, Failure: 'static> Classify<Response, Failure> for By<C, Response, Failure>
where
    C: Fn(&Result<Response, Failure>) -> Outcome + Clone + Send + Sync + 'static,
{
    fn outcome(&self, result: &Result<Response, Failure>) -> Outcome {
        (self.judge)(result)
    }
}
