//! From a key and a cost to a decision: what HTTP, gRPC and RESP all ask.
//!
//! The rules stand in one immutable [`Book`] that is replaced as a whole, so a decision sees either all of a change or
//! nothing of it. The engine finds the rule, names the counter and asks the gate; it keeps no counts of its own.

mod check;
mod descriptors;
mod key;
mod reserve;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc};

use arc_swap::ArcSwap;
use gate::{
    Backend, Clock, Key,
    limiter::{Decision, Limiter, Policy, hold::Holds},
};

pub(crate) use self::descriptors::envoy_rate;
pub use self::{
    check::{Answer, Ask, Wrong},
    descriptors::{Limited, Standing},
    key::{MOST_KEY_BYTES, Space, name},
    reserve::Reserved,
};
use crate::{
    envoy::Domains,
    error::Error,
    rule::{Algorithm, Rule, RuleSet},
    seen::Seen,
};

/// Limits that one call may decide all-or-nothing.
pub const MOST_TOGETHER: usize = 16;

/// Every rule that holds now.
#[derive(Debug, Default)]
pub struct Book {
    /// Each tenant's own, from the API; they win.
    pub tenants: HashMap<Arc<str>, Arc<RuleSet>>,
    /// Every tenant's, from `limits.rules_file`.
    pub file: Arc<RuleSet>,
    /// From `limits.envoy_file`.
    pub envoy: Arc<Domains>,
}

/// The rule of one key, and how the gate counts that key.
#[derive(Clone, Debug)]
pub struct Found {
    pub rule: Arc<Rule>,
    pub key: Key,
    pub policy: Policy,
}

/// Decides. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    limiter: Limiter,
    holds: Holds,
    book: ArcSwap<Book>,
    seen: Seen,
    envoy_algorithm: Algorithm,
    log_sample: f64,
    clock: Clock,
}

impl Engine {
    /// Without rules; [`Engine::replace`] brings them. Needs a Tokio runtime: reservations end in the background.
    pub fn new(backend: &Backend, envoy_algorithm: Algorithm, log_sample: f64) -> Self {
        let limiter = Limiter::new(backend);
        let holds = Holds::new(backend, &limiter);
        let (book, seen, clock) = (ArcSwap::default(), Seen::default(), Clock::System);
        Engine { inner: Arc::new(Inner { limiter, holds, book, seen, envoy_algorithm, log_sample, clock }) }
    }

    /// The rules that hold now.
    pub fn book(&self) -> Arc<Book> {
        self.inner.book.load_full()
    }

    /// From now on these rules hold. Counters stay: a raised limit lets more pass, it forgets nothing.
    pub fn replace(&self, book: Book) {
        self.inner.book.store(Arc::new(book));
    }

    /// The rule that speaks for a tenant's key.
    pub fn find(&self, tenant: &str, key: &str) -> Result<Found, Error> {
        let name = name(tenant, Space::Keys, key)?;
        let book = self.inner.book.load();
        let own = book.tenants.get(tenant).and_then(|rules| rules.find(key));
        let rule = own.or_else(|| book.file.find(key)).ok_or_else(|| Error::NoRule { key: key.to_owned() })?;
        Ok(Found { policy: rule.policy(key, self.inner.clock.now_us()), rule: Arc::clone(rule), key: name })
    }

    /// Counts a key by a policy that the caller brings, without any rule. A cost of 0 only looks.
    pub async fn check_with(&self, key: &Key, policy: &Policy, cost: u64) -> Decision {
        match std::num::NonZeroU64::new(cost) {
            Some(cost) => self.inner.limiter.check(key, policy, cost).await,
            None => self.inner.limiter.peek(key, policy, std::num::NonZeroU64::MIN).await,
        }
    }

    pub(crate) fn seen(&self) -> &Seen {
        &self.inner.seen
    }

    /// The limiter of the gate under this engine.
    pub fn limiter(&self) -> &Limiter {
        &self.inner.limiter
    }
}
