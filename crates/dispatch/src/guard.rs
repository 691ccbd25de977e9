//! A subscription's limits, as the gate knows them.

use std::time::Duration;

use gate::{
    Key, breaker,
    gate::Policy,
    limiter::{self, Algorithm},
    semaphore,
};

use crate::error::Error;

/// A caller that dies gives its place back after this long; a living one renews it.
const PERMIT_LEASE: Duration = Duration::from_secs(10);

/// How long a delivery waits for Redis at least: nobody waits for the answer, and deciding alone costs exactness.
pub const PATIENCE: Duration = Duration::from_millis(500);

/// What the gate needs to decide about one subscription.
#[derive(Clone)]
pub struct Guarded {
    pub key: Key,
    pub policy: Policy,
    pub rate: limiter::Policy,
}

impl Guarded {
    /// The tenant is in the key, so equal ids of two tenants share nothing.
    pub fn new(tenant: &str, subscription: &str, rate_limit: u32, max_concurrency: u32) -> Result<Self, Error> {
        let rate = limiter::Policy::new(Algorithm::SlidingLog, rate_limit.into(), Duration::from_secs(1))?;
        let policy = Policy::default()
            .rate(rate)
            .circuit(breaker::Policy::default())
            .concurrency(semaphore::Policy::new(max_concurrency, PERMIT_LEASE)?);
        Ok(Guarded { key: Key::new(format!("{tenant}/{subscription}"))?, policy, rate })
    }
}
