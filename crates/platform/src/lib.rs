//! Plumbing that every role needs and none owns.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`config`] | how durations, sizes and addresses are written, and the error that names a key and its fix |
//! | [`crash`] | places at which a test has the process die |
//! | [`db`] | SQLite and PostgreSQL, migrations compiled in |
//! | [`health`] | what this process depends on, and whether it can do its job |
//! | [`http`] | extractors and pages that answer bad input with a problem |
//! | [`http_client`] | the only way out: calls to strangers' addresses, guarded, bounded, pooled |
//! | [`http_server`] | the only place that accepts connections: limits, timeouts, drain |
//! | [`id`] | prefixed, time-sortable ids |
//! | [`moment`] | times, as they are written |
//! | [`problem`] | `application/problem+json`, the one shape of an error on the wire |
//! | [`secret`] | text that never prints |
//! | [`shutdown`] | tracked tasks and the two moments of leaving |
//! | [`telemetry`] | logs, metrics, traces |

pub mod config;
pub mod crash;
pub mod db;
pub mod health;
pub mod http;
pub mod http_client;
pub mod http_server;
pub mod id;
pub mod moment;
pub mod problem;
pub mod secret;
pub mod shutdown;
pub mod telemetry;
