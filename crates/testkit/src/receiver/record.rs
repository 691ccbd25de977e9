//! What arrived: every request in full, countable, and awaitable.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Instant, SystemTime},
};

use bytes::Bytes;
use http::{HeaderMap, Method};
use tokio::sync::watch;

use super::Verdict;

/// One request as it arrived.
#[derive(Clone, Debug)]
pub struct Request {
    /// When its head had arrived.
    pub at: Instant,
    pub at_wall: SystemTime,
    pub method: Method,
    pub path: String,
    pub query: Option<String>,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// What the signature was worth.
    pub verdict: Verdict,
    /// Which connection it came over, counted from zero.
    pub connection: u64,
}

impl Request {
    /// A header's value; the empty string where there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }

    pub fn id(&self) -> &str {
        self.header("webhook-id")
    }
}

#[derive(Debug)]
pub(super) struct Record {
    requests: Mutex<Vec<Request>>,
    count: watch::Sender<usize>,
}

impl Record {
    pub(super) fn new() -> Record {
        Record { requests: Mutex::default(), count: watch::channel(0).0 }
    }

    pub(super) fn add(&self, request: Request) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.push(request);
        self.count.send_replace(requests.len());
    }

    pub(super) fn all(&self) -> Vec<Request> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn take(&self) -> Vec<Request> {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        self.count.send_replace(0);
        std::mem::take(&mut *requests)
    }

    pub(super) fn clear(&self) {
        drop(self.take());
    }

    pub(super) fn count(&self) -> usize {
        *self.count.borrow()
    }

    pub(super) fn watch(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }

    /// How often each `webhook-id` arrived.
    pub(super) fn ids(&self) -> BTreeMap<String, usize> {
        let mut ids = BTreeMap::new();
        for request in self.requests.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            *ids.entry(request.id().to_owned()).or_default() += 1;
        }
        ids
    }
}
