//! Gates for any language: enter before a call, exit after it; rate, circuit and concurrency in one decision.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`policy`] | how a target is protected (pure) |
//! | [`pass`] | the pass as callers keep it |
//! | [`catalog`] | policies that somebody wrote, followed |
//! | [`roll`] | which targets are used |
//! | [`store`] | rows, in SQLite and PostgreSQL |
//! | [`http`] | the API over HTTP |
//!
//! A written policy wins over one that a caller brings: what an operator says in one place holds for all. The tenant
//! stands before every target.

mod catalog;
mod error;
mod http;
mod pass;
pub mod policy;
mod roll;
mod store;

use std::{num::NonZeroU64, sync::Arc, time::Duration};

use gate::{
    Backend, Key,
    breaker::{self, Force},
    gate::{By, Entry, Exit, Gate, Outcome, Refused},
    limiter::Decision,
};
use platform::{
    config::Invalid,
    db::{self, Database},
    http::{Page, PageQuery, no_cursor},
    problem::Problem,
    shutdown::Tasks,
};
use tenancy::vault::Vault;

pub(crate) use self::http::{milliseconds, why_not};
use self::{
    catalog::Catalog,
    pass::Pass,
    policy::{Policy, Written},
    roll::Roll,
    store::{Listed, Store},
};
pub use self::{
    error::Error,
    http::routes,
    store::{MIGRATIONS, end_tenant},
};
use crate::{
    engine::{MOST_KEY_BYTES, Space, name},
    metrics::GATE_ENTRIES,
};

const DEFAULT_ORDER: Duration = Duration::from_secs(3600);
/// An order by hand ends by itself after at most this long.
const LONGEST_ORDER: Duration = Duration::from_secs(30 * 24 * 3600);

/// Calls are stopped in an emergency, which may be the database's: an order waits so long for it.
const NOTED_WITHIN: Duration = Duration::from_secs(1);

/// Every tenant's gates. Cheap to clone.
#[derive(Clone)]
pub struct Gates {
    inner: Arc<Inner>,
}

struct Inner {
    gate: Gate,
    vault: Vault,
    store: Store,
    catalog: Catalog,
    roll: Roll,
    standard: Arc<Policy>,
}

/// Whose policy decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Written by somebody for this target.
    Stored,
    /// Brought by the caller.
    Given,
    Default,
}

/// What `enter` says.
#[derive(Debug)]
pub enum Entered {
    Pass { pass: String, lease: Duration, is_probe: bool, rate: Option<Decision>, source: Source, degraded: bool },
    Refused { refused: Refused, source: Source },
}

/// Everything about one target.
#[derive(Debug)]
pub struct State {
    pub policy: Arc<Policy>,
    pub source: Source,
    pub circuit: Option<breaker::View>,
    pub held: u32,
    pub rate: Option<Decision>,
    pub degraded: bool,
}

/// A target of one tenant, and how it is protected.
struct Target {
    key: Key,
    policy: Arc<Policy>,
    source: Source,
}

impl Gates {
    /// Reads the policies and follows them; fails if the database does.
    pub async fn start(database: Database, vault: Vault, shared: &Backend, tasks: &Tasks) -> Result<Gates, db::Error> {
        let store = Store::new(database);
        let catalog = Catalog::new(store.clone());
        catalog.refresh().await?;
        catalog.follow(tasks);
        let roll = Roll::start(store.clone(), tasks);
        let standard = Arc::new(Written::standard().check("").expect("the default policy is valid; a test says so"));
        let inner = Inner { gate: Gate::new(shared), vault, store, catalog, roll, standard };
        Ok(Gates { inner: Arc::new(inner) })
    }

    /// May a call to this target go ahead?
    pub async fn enter(
        &self,
        tenant: &str,
        target: &str,
        cost: u64,
        given: Option<&Written>,
    ) -> Result<Entered, Error> {
        let cost = NonZeroU64::new(cost).ok_or_else(|| Invalid::new("cost", "a call costs at least 1"))?;
        let Target { key, policy, source } = self.target(tenant, target, given)?;
        if policy.rate.is_some_and(|rate| cost.get() > rate.capacity()) {
            let most = policy.rate.map_or(0, |rate| rate.capacity());
            return Err(
                Invalid::new("cost", format!("a cost of {cost} can never pass: at most {most} do at once")).into()
            );
        }
        self.inner.roll.note(tenant, target);
        let entry = self.inner.gate.enter(&key, &policy.joined, cost).await;
        let result = match &entry {
            Entry::Pass(_) => "pass",
            Entry::Refused(refused) => refuser(refused.by),
        };
        metrics::counter!(GATE_ENTRIES, "result" => result).increment(1);
        match entry {
            Entry::Pass(entered) => {
                let (is_probe, degraded) = (entered.is_probe(), entered.is_degraded());
                let (rate, lease) = (entered.rate().copied(), policy.lease);
                let given = (source == Source::Given).then(|| policy.written.clone());
                let pass = Pass { token: entered.detach(), policy: given };
                let pass = pass.write(&self.inner.vault, tenant, target);
                Ok(Entered::Pass { pass, lease, is_probe, rate, source, degraded })
            }
            Entry::Refused(refused) => Ok(Entered::Refused { refused, source }),
        }
    }

    /// Ends a pass: the permit is free, the circuit hears. Late or again it changes nothing, and says so.
    pub async fn exit(
        &self,
        tenant: &str,
        target: &str,
        pass: &str,
        outcome: Outcome,
        latency: Duration,
    ) -> Result<Exit, Error> {
        let (Target { key, policy, .. }, pass) = self.shown(tenant, target, pass)?;
        Ok(self.inner.gate.exit(&key, &policy.joined, &pass.token, outcome, latency).await)
    }

    /// The lease begins anew; `None`: it was over, or the pass was ended.
    pub async fn renew(&self, tenant: &str, target: &str, pass: &str) -> Result<Option<Duration>, Error> {
        let (Target { key, policy, .. }, pass) = self.shown(tenant, target, pass)?;
        Ok(self.inner.gate.renew(&key, &policy.joined, &pass.token).await.then_some(policy.lease))
    }

    /// How a target stands, without touching it.
    pub async fn state(&self, tenant: &str, target: &str) -> Result<State, Error> {
        let Target { key, policy, source } = self.target(tenant, target, None)?;
        let gate = &self.inner.gate;
        let view = gate.breaker().with_policy(policy.circuit.clone().unwrap_or_default()).view(&key).await;
        // An order by hand holds also where no circuit guards.
        let is_shown =
            policy.circuit.is_some() || matches!(view.state, breaker::State::ForcedOpen | breaker::State::ForcedClosed);
        let circuit = is_shown.then_some(view);
        let rate = match &policy.rate {
            Some(rate) => Some(gate.limiter().peek(&key, rate, NonZeroU64::MIN).await),
            None => None,
        };
        let held = gate.semaphore().held(&key).await;
        let degraded = view.degraded || rate.is_some_and(|rate| rate.degraded);
        Ok(State { policy, source, circuit, held, rate, degraded })
    }

    /// Writes a target's policy for the whole fleet.
    pub async fn put_policy(&self, actor: &str, tenant: &str, target: &str, policy: &Written) -> Result<(), Error> {
        check_target(target)?;
        policy.check("")?;
        if !self.inner.store.put_policy(actor, tenant, target, policy).await? {
            return Err(Error::TooManyPolicies);
        }
        Ok(self.inner.catalog.refresh().await?)
    }

    /// Takes a target's policy away, if it has one.
    pub async fn take_policy(&self, actor: &str, tenant: &str, target: &str) -> Result<(), Error> {
        check_target(target)?;
        self.inner.store.take_policy(actor, tenant, target).await?;
        Ok(self.inner.catalog.refresh().await?)
    }

    /// Forces the target open or closed for a time (an hour if absent), whatever policies its callers bring; no force
    /// leaves it to its calls again.
    pub async fn order(
        &self,
        actor: &str,
        tenant: &str,
        target: &str,
        force: Option<Force>,
        lasting: Option<Duration>,
    ) -> Result<(), Error> {
        let Target { key, policy, .. } = self.target(tenant, target, None)?;
        let order = force.map(|force| (force, lasting.unwrap_or(DEFAULT_ORDER)));
        if order.is_some_and(|(_, lasting)| lasting.is_zero() || lasting > LONGEST_ORDER) {
            return Err(Invalid::new("for", "an order holds longer than 0s and at most 30days").into());
        }
        let action = match order {
            Some((Force::Open, _)) => "gate.forced_open",
            Some((Force::Closed, _)) => "gate.forced_closed",
            None => "gate.automatic",
        };
        // Noted first, so that nobody can hang up in between.
        let noted = self.inner.store.note_order(actor, tenant, target, action);
        match tokio::time::timeout(NOTED_WITHIN, noted).await {
            Ok(Ok(())) => (),
            missed => {
                tracing::error!(
                    actor,
                    tenant,
                    gate = target,
                    action,
                    ?missed,
                    "An order may be missing in the audit log."
                );
            }
        }
        self.inner.roll.note(tenant, target);
        let breaker = self.inner.gate.breaker().with_policy(policy.circuit.clone().unwrap_or_default());
        let ordered = match order {
            Some((force, lasting)) => breaker.force(&key, force, lasting).await,
            None => breaker.automatic(&key).await,
        };
        ordered.map_err(Error::NotOrdered)
    }

    /// Targets by name: those with a stored policy, and those used lately.
    pub(crate) async fn list(&self, tenant: &str, page: &PageQuery) -> Result<Page<Listed>, Problem> {
        let limit = page.limit()?;
        let after = page.after.as_deref();
        after.map_or(Ok(()), check_target).map_err(|_| no_cursor())?;
        let rows = self.inner.store.list(tenant, after, limit + 1).await?;
        Ok(Page::from_rows(rows, limit, |row| &row.target))
    }

    fn target(&self, tenant: &str, target: &str, given: Option<&Written>) -> Result<Target, Error> {
        let key = check_target(target).and_then(|()| {
            name(tenant, Space::Gates, target).map_err(|error| Invalid::new("target", error.to_string()))
        })?;
        let given = given.map(|given| given.check("policy.")).transpose()?;
        let (policy, source) = match (self.inner.catalog.get(tenant, target), given) {
            (Some(stored), _) => (stored, Source::Stored),
            (None, Some(given)) => (Arc::new(given), Source::Given),
            (None, None) => (self.inner.standard.clone(), Source::Default),
        };
        Ok(Target { key, policy, source })
    }

    fn shown(&self, tenant: &str, target: &str, pass: &str) -> Result<(Target, Pass), Error> {
        let pass = Pass::read(pass, &self.inner.vault, tenant, target).ok_or(Error::ForeignPass)?;
        Ok((self.target(tenant, target, pass.policy.as_ref())?, pass))
    }
}

/// A name that can be counted, listed and printed.
fn check_target(target: &str) -> Result<(), Invalid> {
    if target.is_empty() || target.len() > MOST_KEY_BYTES || target.chars().any(char::is_control) {
        let problem = format!("a target has 1 to {MOST_KEY_BYTES} bytes and no control characters");
        return Err(Invalid::new("target", problem));
    }
    Ok(())
}

impl Source {
    pub fn name(self) -> &'static str {
        match self {
            Source::Stored => "stored",
            Source::Given => "given",
            Source::Default => "default",
        }
    }
}

/// The word for what refused, as in answers and metrics.
pub(crate) fn refuser(by: By) -> &'static str {
    match by {
        By::Rate => "rate",
        By::Circuit => "circuit",
        By::Concurrency => "concurrency",
    }
}
