//! The names of dispatch's metrics. No tenant, no URL: labels are bounded.

pub(crate) const EVENTS: &str = "tidegate_events_total"; // result: accepted, repeat, conflict
pub(crate) const DELIVERIES: &str = "tidegate_deliveries_total"; // result: delivered, retrying, failed, throttled
pub(crate) const ATTEMPTS: &str = "tidegate_attempts_total"; // class
pub(crate) const ATTEMPT_SECONDS: &str = "tidegate_attempt_seconds";
pub(crate) const LATENCY_SECONDS: &str = "tidegate_delivery_latency_seconds"; // accepted to delivered
pub(crate) const IN_FLIGHT: &str = "tidegate_deliveries_in_flight";
pub(crate) const WAITING: &str = "tidegate_deliveries_waiting"; // in this process's lanes
pub(crate) const LAG_SECONDS: &str = "tidegate_delivery_lag_seconds"; // of the oldest that waits, deferred ones included
pub(crate) const REFUSED: &str = "tidegate_gate_refusals_total"; // by: rate, circuit, concurrency
pub(crate) const JOB_CHANGES: &str = "tidegate_job_changes_total"; // change: requeued, created, cancelled, deleted
pub(crate) const FENCED: &str = "tidegate_outcomes_fenced_total"; // outcomes that came too late to count
