//! Bars 24 to 30 and 33 of exactness and faults, through the service: three replicas on one Redis, callers over HTTP, the
//! settings of production. `make test` runs them for seconds, `make soak` for a minute each; what must hold is the same.
//! Bars 31 and 32 are in `gates`. What is counted always holds; times are judged where the machine is quick enough for it.
//!
//! - `exact` (24): nothing over the limit, all of it used.
//! - `gone` (25, 28): Redis is killed, emptied, restarted, replaced by one that lags.
//! - `stalled` (26, 27, 30): it is there and does not answer, or only now and then, or has forgotten its scripts.
//! - `cluster` (29), `line` (33): slots and masters move; connections break and come back.

mod cluster;
mod exact;
mod fleet;
mod gone;
mod line;
mod measure;
mod stalled;

use std::time::Duration;

use crate::support::size;

const SECOND: Duration = Duration::from_secs(1);

/// So many seconds in `make test` and in `make soak`.
fn seconds(short: usize, long: usize) -> Duration {
    SECOND * u32::try_from(size(short, long)).unwrap()
}
