//! Names of the client's metrics. Labels are bounded: never a host, a URL or a tenant.

/// Connections opened, by `protocol`: `http1`, `http2`.
pub const CONNECTIONS: &str = "tidegate_http_client_connections_total";
/// Calls that went over a connection that was open already.
pub const REUSED: &str = "tidegate_http_client_reused_total";
/// Calls sent again because the receiver had closed the idle connection they were sent over.
pub const RESENT: &str = "tidegate_http_client_resent_total";
/// Calls and addresses refused, by `code`.
pub const REFUSED: &str = "tidegate_http_client_refused_total";
/// Idle connections closed because the pool was full.
pub const EVICTED: &str = "tidegate_http_client_evicted_total";
pub const IDLE: &str = "tidegate_http_client_idle_connections";
