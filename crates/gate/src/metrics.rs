//! Names of the metrics. Labels are bounded: never a key.

/// Counter `{operation, status}`; status is `ok`, `error` or `timeout`.
pub(crate) const REDIS_OPERATIONS: &str = "redis_operations_total";
/// Histogram `{operation}`, seconds of one operation as its caller felt it.
pub(crate) const REDIS_LATENCY: &str = "redis_latency_seconds";
/// Gauge: 1 while this process decides alone.
pub(crate) const REDIS_FALLBACK_ACTIVE: &str = "redis_fallback_active";
/// Gauge: live replicas by the last heartbeat, this one included; each takes its share of a limit while Redis is away.
pub(crate) const REDIS_REPLICAS: &str = "redis_replicas";
/// Counter `{mode}`: decisions made without Redis.
pub(crate) const FALLBACK_DECISIONS: &str = "gate_fallback_decisions_total";
/// Counter `{map}`: keys thrown out although still in use, because a map was full.
pub(crate) const MAP_EVICTIONS: &str = "gate_map_evictions_total";
/// Counter: holds refused because this process keeps as many as it can, in all or of one owner.
pub(crate) const HOLDS_REFUSED: &str = "gate_holds_refused_total";
/// Counter `{to}`: circuits that changed their state.
pub(crate) const CIRCUIT_CHANGES: &str = "gate_circuit_changes_total";
/// Gauge: 1 while Redis is set to throw keys away when it is full.
pub(crate) const REDIS_MAY_EVICT: &str = "redis_may_evict";
/// Counter: permits whose lease ended while they were held.
pub(crate) const PERMITS_LOST: &str = "gate_permits_lost_total";
/// Counter: permits that nobody holds and Redis may count until their lease ends: too many wait to be taken back.
pub(crate) const PERMITS_LEFT: &str = "gate_permits_left_total";
