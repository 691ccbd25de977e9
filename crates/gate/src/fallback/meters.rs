//! What operations on Redis are counted by: looked up once per operation, because a lookup costs as much as a decision.

use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Counter, Histogram};

use crate::metrics::{REDIS_LATENCY, REDIS_OPERATIONS};

/// Operations with a place of their own: more than there are.
const PLACES: usize = 32;

/// How an operation ended.
#[derive(Clone, Copy)]
pub(super) enum Status {
    Ok,
    Error,
    Timeout,
}

#[derive(Default)]
pub(super) struct Meters([OnceLock<Meter>; PLACES]);

struct Meter {
    operation: &'static str,
    /// By status.
    counts: [Counter; 3],
    latency: Histogram,
}

impl Meters {
    pub(super) fn record(&self, operation: &'static str, status: Status, took: Duration) {
        let meter = self.0.iter().map(|place| place.get_or_init(|| Meter::new(operation)));
        let Some(meter) = meter.into_iter().find(|meter| meter.operation == operation) else { return };
        meter.counts[status as usize].increment(1);
        meter.latency.record(took);
    }
}

impl Meter {
    fn new(operation: &'static str) -> Meter {
        let count = |status| metrics::counter!(REDIS_OPERATIONS, "operation" => operation, "status" => status);
        Meter {
            operation,
            counts: [count("ok"), count("error"), count("timeout")],
            latency: metrics::histogram!(REDIS_LATENCY, "operation" => operation),
        }
    }
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meters")
    }
}
