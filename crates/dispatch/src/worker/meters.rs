//! What is counted for every delivery that goes well, looked up once; the rest is counted by its name.

use std::time::Duration;

use metrics::{Counter, Histogram};

use crate::{
    delivery::{Outcome, Status},
    metrics as names,
};

pub(super) struct Meters {
    delivered: Counter,
    succeeded: Counter,
    attempt_seconds: Histogram,
    latency_seconds: Histogram,
}

impl Meters {
    pub(super) fn new() -> Self {
        Meters {
            delivered: deliveries(Status::Delivered),
            succeeded: attempts("success"),
            attempt_seconds: metrics::histogram!(names::ATTEMPT_SECONDS),
            latency_seconds: metrics::histogram!(names::LATENCY_SECONDS),
        }
    }

    pub(super) fn attempted(&self, outcome: &Outcome, took: Duration) {
        self.attempt_seconds.record(took.as_secs_f64());
        if outcome.is_success() { self.succeeded.increment(1) } else { attempts(outcome.class()).increment(1) }
    }

    pub(super) fn ended(&self, status: Status) {
        if status == Status::Delivered { self.delivered.increment(1) } else { deliveries(status).increment(1) }
    }

    /// From accepted to delivered.
    /// Told by two clocks, so it may be less than nothing.
    pub(super) fn delivered_after(&self, took: time::Duration) {
        self.latency_seconds.record(took.as_seconds_f64().max(0.0));
    }
}

fn attempts(class: &'static str) -> Counter {
    metrics::counter!(names::ATTEMPTS, "class" => class)
}

fn deliveries(status: Status) -> Counter {
    metrics::counter!(names::DELIVERIES, "result" => status.as_str())
}
