//! The names of dispatch's metrics. No tenant, no URL: labels are bounded.

pub(crate) const EVENTS: &str = "tidegate_events_total"; // result: accepted, repeat, conflict
pub(crate) const IDS_NOT_CHECKED: &str = "tidegate_event_ids_not_checked_total"; // the database did not answer in time
pub(crate) const QUEUED_IN_DATABASE: &str = "tidegate_events_queued_in_database_total"; // while Kafka was away
pub(crate) const DELIVERIES: &str = "tidegate_deliveries_total"; // result: delivered, retrying, failed, throttled
pub(crate) const ATTEMPTS: &str = "tidegate_attempts_total"; // class
pub(crate) const ATTEMPT_SECONDS: &str = "tidegate_attempt_seconds";
pub(crate) const LATENCY_SECONDS: &str = "tidegate_delivery_latency_seconds"; // accepted to delivered
pub(crate) const IN_FLIGHT: &str = "tidegate_deliveries_in_flight";
pub(crate) const WAITING: &str = "tidegate_deliveries_waiting"; // in this process's lanes
pub(crate) const LAG_SECONDS: &str = "tidegate_delivery_lag_seconds"; // of the oldest that waits, deferred ones included
pub(crate) const REFUSED: &str = "tidegate_gate_refusals_total"; // by: rate, circuit, concurrency
pub(crate) const LANE_FULL: &str = "tidegate_lane_full_total"; // deliveries that found no room in the lane of their subscription
pub(crate) const JOB_CHANGES: &str = "tidegate_job_changes_total"; // change: requeued, created, cancelled, deleted
pub(crate) const CIRCUITS: &str = "tidegate_circuits"; // state: open, closed; of subscriptions, as this replica knows them
pub(crate) const RESCUED: &str = "tidegate_deliveries_rescued_total"; // that nobody would ever have taken
pub(crate) const FENCED: &str = "tidegate_outcomes_fenced_total"; // outcomes that came too late to count
pub(crate) const OUTCOME_RETRIES: &str = "tidegate_outcome_write_retries_total"; // the database did not take them
pub(crate) const DATABASE_BYTES: &str = "tidegate_database_bytes"; // SQLite's file and its log
#[cfg(feature = "kafka")]
pub(crate) use kafka::*;

/// Kafka's part.
#[cfg(feature = "kafka")]
mod kafka {
    pub(crate) const KAFKA_AWAY: &str = "tidegate_kafka_away"; // 1 while Kafka does not answer
    pub(crate) const KAFKA_PRODUCE_ERRORS: &str = "tidegate_kafka_produce_errors_total"; // reason
    pub(crate) const KAFKA_RECORDS: &str = "tidegate_kafka_records_total"; // result: taken, known, rejected
    pub(crate) const KAFKA_REJECTED: &str = "tidegate_kafka_rejected_total"; // reason
    pub(crate) const KAFKA_BATCH: &str = "tidegate_kafka_batch_records";
    pub(crate) const KAFKA_LAG: &str = "tidegate_kafka_lag_records"; // partition
    pub(crate) const KAFKA_PARTITIONS: &str = "tidegate_kafka_partitions"; // assigned to this process
    pub(crate) const KAFKA_REBALANCES: &str = "tidegate_kafka_rebalances_total"; // kind: assign, revoke
    pub(crate) const KAFKA_PAUSES: &str = "tidegate_kafka_pauses_total"; // reading waited for the database
    pub(crate) const KAFKA_RESTARTS: &str = "tidegate_kafka_restarts_total"; // reading failed and began anew
    pub(crate) const KAFKA_WRITE_RETRIES: &str = "tidegate_kafka_write_retries_total";
}
