//! A subscription's limits, as the gate knows them.

use std::time::Duration;

use gate::{Key, breaker, gate::Policy, limiter, semaphore};

use crate::error::Error;

/// A caller that dies gives its place back after this long; a living one renews it.
const PERMIT_LEASE: Duration = Duration::from_secs(10);

/// A second as a receiver may see it: calls that left a second apart arrive a few milliseconds more or less.
const SECOND: Duration = Duration::from_millis(1008);

/// A slot of the rate this near is taken at once and waited for, so that being late to ask costs nothing. Not longer: a call
/// that waits for its slot holds one of the places.
const AHEAD: Duration = Duration::from_millis(20);

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
        let rate = limiter::Policy::spread(rate_limit.into(), SECOND, at_once(rate_limit) as u64)?;
        let policy = Policy::default()
            .rate(rate)
            .ahead(AHEAD)
            .circuit(breaker::Policy::default())
            .concurrency(semaphore::Policy::new(max_concurrency, PERMIT_LEASE)?);
        Ok(Guarded { key: Key::new(format!("{tenant}/{subscription}"))?, policy, rate })
    }
}

/// How many of a rate may go at once; the rest of it is spread over the second.
pub fn at_once(rate_limit: u32) -> usize {
    (rate_limit as usize / 100).max(1)
}
