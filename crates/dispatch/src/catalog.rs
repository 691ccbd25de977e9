//! The subscriptions in memory, ready to match and to call.
//!
//! Rows are compiled once (globs, filter, headers, signer, gate policy). Intake finds an event type's subscriptions with
//! one look-up, however many there are; the list is remembered per type until a subscription of the tenant changes.
//! Other replicas' changes are seen within [`REFRESH`], our own at once.

mod health;
mod routes;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::http::{HeaderName, HeaderValue};
use hashbrown::{HashMap, HashSet};
use parking_lot::{Mutex, RwLock};
use platform::{
    config::Invalid,
    db,
    http_client::{Reachable, Target, TlsIdentity},
    id,
    problem::Chain,
    secret::Secret,
    shutdown::Tasks,
};
use tenancy::vault::{Place, Vault};
use tokio::time::Instant;

use self::{health::Health, routes::Routes};
use crate::{
    delivery::{Document, EventType, Filter, Matcher, RetryPolicy, Signer, SigningKey, SigningSecret},
    error::Error,
    guard::Guarded,
    model::{Ordering, Settings, Signatures, Standing},
    operational,
    store::{
        Store,
        records::{Changed, SealedSecret, SubscriptionRow},
    },
    tls::Tls,
};

/// How long another replica's change may go unnoticed.
pub const REFRESH: Duration = Duration::from_millis(500);
/// Event types and their subscriptions that are remembered, of all tenants. Whoever sends chooses the types.
const MOST_REMEMBERED: usize = 250_000;
/// The row of `subscription_secrets` that holds custom headers, which may carry the receiver's credentials.
const HEADERS: &str = "headers";
/// The one that holds its TLS material.
const TLS: &str = "tls";
/// Rows of `subscription_secrets` that hold private keys for `v1a`.
const KEY_PREFIX: &str = "sgk";

/// Tenant and id.
pub type SubscriptionKey = (Arc<str>, Arc<str>);

/// One subscription, compiled.
pub struct Endpoint {
    pub id: Arc<str>,
    pub tenant: Arc<str>,
    pub matcher: Matcher,
    pub filter: Option<Filter>,
    /// `None`: it cannot be called from here, because another master key sealed its secrets, or its URL is refused. What it
    /// takes is readable all the same, so its events are kept for a replica that can.
    pub reach: Option<Reach>,
    pub retry: RetryPolicy,
    pub timeout: Duration,
    pub ordering: Ordering,
    pub enabled: bool,
    /// Events are kept for it: it is on, or paused by hand.
    pub takes_events: bool,
    pub rate_limit: u32,
    pub max_concurrency: u32,
    pub guarded: Guarded,
    pub health: Arc<Health>,
    pub failing_since: Option<time::OffsetDateTime>,
    /// Its circuit is open, as far as this replica knows.
    pub is_circuit_open: AtomicBool,
    /// By the database.
    pub circuit_opened_at: Option<time::OffsetDateTime>,
}

/// What a call to a subscription is made of.
pub struct Reach {
    pub target: Target,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub signer: Signer,
    /// Its own authority and client certificate.
    pub tls: Option<Arc<TlsIdentity>>,
}

#[derive(Default)]
struct TenantCatalog {
    by_id: HashMap<Arc<str>, Arc<Endpoint>>,
    /// Those that take events.
    routes: Routes<Arc<Endpoint>>,
    by_type: HashMap<Box<str>, Arc<[Arc<Endpoint>]>>,
    /// Those that are there, and not even what they take can be read here.
    unreadable: BTreeSet<Box<str>>,
}

impl TenantCatalog {
    fn remove(&mut self, id: &str) -> Option<Arc<Endpoint>> {
        self.by_type.clear();
        self.unreadable.remove(id);
        let before = self.by_id.remove(id)?;
        self.routes.remove(&before.matcher, |known| Arc::ptr_eq(known, &before));
        Some(before)
    }
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Catalog {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    vault: Vault,
    reachable: Reachable,
    tenants: RwLock<HashMap<Arc<str>, TenantCatalog>>,
    /// No more types and subscriptions than that are remembered.
    remembered: AtomicUsize,
    version: AtomicI64,
    /// Subscriptions that were switched on since someone asked.
    switched_on: Mutex<HashSet<SubscriptionKey>>,
    /// The last refresh. One at a time: the later one finds nothing left to do.
    refreshed: tokio::sync::Mutex<Option<Refreshed>>,
}

#[derive(Clone, Copy)]
struct Refreshed {
    begun: Instant,
    /// When the database's server was started.
    server: Option<time::OffsetDateTime>,
}

impl Catalog {
    pub fn new(store: Store, vault: Vault, reachable: Reachable) -> Self {
        let inner = Inner {
            store,
            vault,
            reachable,
            tenants: RwLock::default(),
            remembered: AtomicUsize::new(0),
            version: AtomicI64::new(0),
            switched_on: Mutex::default(),
            refreshed: tokio::sync::Mutex::default(),
        };
        Catalog { inner: Arc::new(inner) }
    }

    /// Of the newest change that is known here.
    pub fn version(&self) -> i64 {
        self.inner.version.load(Relaxed)
    }

    /// The subscriptions that take this event, also for later: their globs match, and their filters. One of Tidegate's own is
    /// taken by those alone that name it.
    pub fn wanted(&self, tenant: &str, event_type: &EventType, document: &Document<'_>) -> Vec<Arc<Endpoint>> {
        let is_operational = document.source == Some(operational::SOURCE);
        let endpoints =
            if is_operational { self.naming(tenant, event_type) } else { self.matching(tenant, event_type) };
        let passes = |endpoint: &&Arc<Endpoint>| endpoint.filter.as_ref().is_none_or(|filter| filter.matches(document));
        endpoints.iter().filter(passes).cloned().collect()
    }

    /// Before any filter.
    fn matching(&self, tenant: &str, event_type: &EventType) -> Arc<[Arc<Endpoint>]> {
        self.remembered(tenant, event_type, event_type.as_str(), |matcher| matcher.matches(event_type))
    }

    /// The same for an event of Tidegate's own: only those that name it.
    fn naming(&self, tenant: &str, event_type: &EventType) -> Arc<[Arc<Endpoint>]> {
        // No type has such a character, so the two never share a place.
        let place = format!("!{event_type}");
        self.remembered(tenant, event_type, &place, |matcher| matcher.first_naming(event_type).is_some())
    }

    fn remembered(
        &self,
        tenant: &str,
        event_type: &EventType,
        place: &str,
        is_wanted: impl Fn(&Matcher) -> bool,
    ) -> Arc<[Arc<Endpoint>]> {
        if let Some(tenant) = self.inner.tenants.read().get(tenant) {
            if let Some(known) = tenant.by_type.get(place) {
                return Arc::clone(known);
            }
        } else {
            return Arc::new([]);
        }
        let mut tenants = self.inner.tenants.write();
        let Some(of_tenant) = tenants.get(tenant) else { return Arc::new([]) };
        let candidates = of_tenant.routes.candidates(event_type);
        let found: Arc<[Arc<Endpoint>]> = candidates.filter(|endpoint| is_wanted(&endpoint.matcher)).cloned().collect();
        let more = 1 + found.len();
        if self.inner.remembered.fetch_add(more, Relaxed) + more > MOST_REMEMBERED {
            tenants.values_mut().for_each(|tenant| tenant.by_type = HashMap::new());
            self.inner.remembered.store(more, Relaxed);
        }
        if let Some(tenant) = tenants.get_mut(tenant) {
            tenant.by_type.insert(place.into(), Arc::clone(&found));
        }
        found
    }

    /// How many circuits are open and how many closed, as far as this replica knows.
    pub fn circuits(&self) -> (usize, usize) {
        let tenants = self.inner.tenants.read();
        let endpoints = tenants.values().flat_map(|tenant| tenant.by_id.values());
        let (open, closed): (Vec<_>, Vec<_>) = endpoints.partition(|endpoint| endpoint.is_circuit_open.load(Relaxed));
        (open.len(), closed.len())
    }

    pub fn endpoint(&self, tenant: &str, id: &str) -> Option<Arc<Endpoint>> {
        self.inner.tenants.read().get(tenant)?.by_id.get(id).cloned()
    }

    /// Is it there, and yet cannot be called from here?
    pub fn is_unusable(&self, tenant: &str, id: &str) -> bool {
        let tenants = self.inner.tenants.read();
        let Some(tenant) = tenants.get(tenant) else { return false };
        tenant.by_id.get(id).map_or_else(|| tenant.unreadable.contains(id), |endpoint| endpoint.reach.is_none())
    }

    /// Those of the tenant that another version wrote, and this one cannot read.
    pub fn unreadable(&self, tenant: &str) -> Vec<Box<str>> {
        let tenants = self.inner.tenants.read();
        tenants.get(tenant).map(|tenant| tenant.unreadable.iter().cloned().collect()).unwrap_or_default()
    }

    /// Every subscription of the tenant that can be read, enabled or not.
    pub fn all(&self, tenant: &str) -> Vec<Arc<Endpoint>> {
        self.inner.tenants.read().get(tenant).map(|tenant| tenant.by_id.values().cloned().collect()).unwrap_or_default()
    }

    /// The subscriptions that were off and are on, each told once.
    pub fn take_switched_on(&self) -> HashSet<SubscriptionKey> {
        std::mem::take(&mut self.inner.switched_on.lock())
    }

    /// Reads what changed since the last time.
    pub async fn refresh(&self) -> Result<(), db::Error> {
        self.refresh_since(Instant::now()).await
    }

    /// The same, unless that was done after `moment`. Another replica may just have made what a claimed row speaks of.
    pub async fn refresh_since(&self, moment: Instant) -> Result<(), db::Error> {
        let Inner { store, version, refreshed, .. } = &*self.inner;
        let mut refreshed = refreshed.lock().await;
        if refreshed.is_some_and(|last| last.begun > moment) {
            return Ok(());
        }
        let (begun, mut seen) = (Instant::now(), version.load(Relaxed));
        let mut known = refreshed.map(|last| last.server);
        let mut anew: Option<HashSet<(String, String)>> = None;
        loop {
            let rows = store.changed_subscriptions(seen).await?;
            let Some(newest) = rows.last().map(|row| row.version) else {
                let server = store.server_began().await?;
                if anew.is_none() && known.is_some_and(|known| known != server) {
                    // What the last one had and this one lacks may have been made up for under the same versions.
                    (known, seen, anew) = (Some(server), 0, Some(HashSet::new()));
                    continue;
                }
                if let Some(all) = anew {
                    self.keep_only(&all);
                }
                version.store(seen, Relaxed);
                *refreshed = Some(Refreshed { begun, server: known.unwrap_or(server) });
                return Ok(());
            };
            if rows.first().is_some_and(|row| row.version <= seen) {
                anew = Some(HashSet::new());
            }
            if let Some(all) = &mut anew {
                all.extend(rows.iter().map(|row| (row.tenant.clone(), row.id.clone())));
            }
            let mut secrets = self.secrets_of_all(&rows).await?;
            for mut row in rows {
                let secrets = secrets.remove(&(row.tenant.clone(), row.id.clone())).unwrap_or_default();
                // Every subscription has some. It was deleted after its row was read, and they went with it.
                row.is_deleted |= secrets.is_empty();
                self.take(row, &secrets);
            }
            seen = newest;
        }
    }

    /// All were read anew, because a failover has lost the last changes: what is not among them was lost with those.
    fn keep_only(&self, all: &HashSet<(String, String)>) {
        for (tenant, known) in self.inner.tenants.write().iter_mut() {
            let ids = known.by_id.keys().map(|id| &**id).chain(known.unreadable.iter().map(|id| &**id));
            let keys = ids.map(|id| (tenant.to_string(), id.to_owned()));
            for (_, id) in keys.filter(|key| !all.contains(key)).collect::<Vec<_>>() {
                known.remove(&id);
            }
        }
    }

    /// Follows other replicas' changes until shutdown.
    pub fn follow(&self, tasks: &Tasks) {
        let (catalog, stopping) = (self.clone(), tasks.stopping().clone());
        tasks.spawn("subscription catalog", async move {
            let mut tick = tokio::time::interval(REFRESH);
            while stopping.run_until_cancelled(tick.tick()).await.is_some() {
                if let Err(error) = catalog.refresh().await {
                    tracing::warn!(
                        error = %Chain(&error),
                        "Subscriptions could not be read; the last known ones are used."
                    );
                }
            }
        });
    }

    /// By tenant and subscription.
    async fn secrets_of_all(
        &self,
        rows: &[Changed],
    ) -> Result<HashMap<(String, String), Vec<SealedSecret>>, db::Error> {
        let mut ids: HashMap<&str, Vec<&str>> = HashMap::new();
        for row in rows.iter().filter(|row| !row.is_deleted) {
            ids.entry(&row.tenant).or_default().push(&row.id);
        }
        let mut all: HashMap<_, Vec<SealedSecret>> = HashMap::new();
        for (tenant, ids) in ids {
            for (id, secret) in self.inner.store.secrets(tenant, &ids).await? {
                all.entry((tenant.to_owned(), id)).or_default().push(secret);
            }
        }
        Ok(all)
    }

    fn take(&self, changed: Changed, secrets: &[SealedSecret]) {
        let Changed { id, tenant, is_deleted, row, .. } = changed;
        let compiled = if is_deleted { None } else { self.compile(&id, row, secrets).map(Arc::new) };
        let mut tenants = self.inner.tenants.write();
        let tenant = tenants.entry(tenant.into()).or_default();
        let before = tenant.remove(&id);
        let Some(endpoint) = compiled else {
            if !is_deleted {
                tenant.unreadable.insert(id.into());
            }
            return;
        };
        if endpoint.takes_events {
            tenant.routes.add(&endpoint.matcher, &endpoint);
        }
        if endpoint.enabled && before.is_some_and(|before| !before.enabled) {
            let key = (Arc::clone(&endpoint.tenant), Arc::clone(&endpoint.id));
            self.inner.switched_on.lock().insert(key);
        }
        tenant.by_id.insert(Arc::clone(&endpoint.id), endpoint);
    }

    /// What was checked at write time compiles; what does not (another version wrote it, or another master key sealed it) is
    /// left out, loudly.
    fn compile(&self, id: &str, row: Result<SubscriptionRow, db::Error>, secrets: &[SealedSecret]) -> Option<Endpoint> {
        let loudly = |error: &Error| {
            tracing::error!(subscription = id, error = %Chain(error), "A subscription cannot be used.");
        };
        let row = row.map_err(Error::from).inspect_err(loudly).ok()?;
        // What was seen of it stays known, whatever else has changed.
        let health = self.endpoint(&row.tenant, id).map(|before| Arc::clone(&before.health)).unwrap_or_default();
        health.know(row.failing_since.is_some());
        let reach = self.reach(&row, secrets).inspect_err(loudly).ok();
        compile(&row, reach, health).inspect_err(loudly).ok()
    }

    fn reach(&self, row: &SubscriptionRow, secrets: &[SealedSecret]) -> Result<Reach, Error> {
        let secrets = open_secrets(&self.inner.vault, &row.tenant, &row.id, secrets)?;
        let keys = if row.settings.signatures == Signatures::Both { secrets.keys } else { Vec::new() };
        Ok(Reach {
            target: Target::parse(&row.settings.url, &self.inner.reachable)?,
            headers: secrets.headers.iter().map(|(name, value)| header(name, value)).collect::<Result<_, _>>()?,
            signer: Signer::new(secrets.signing, keys)?,
            tls: secrets.tls.as_ref().map(Tls::identity).transpose()?,
        })
    }

    pub fn seal(&self, tenant: &str, subscription: &str, id: &str, secret: &Secret) -> SealedSecret {
        let row = place(subscription, id);
        let sealed = self.inner.vault.seal(Place { tenant, row: &row }, secret);
        SealedSecret { id: id.to_owned(), sealed, expires_at: None }
    }

    /// A subscription's custom headers, sealed: their values may be credentials.
    pub fn seal_headers(&self, tenant: &str, subscription: &str, headers: &BTreeMap<String, String>) -> SealedSecret {
        let json = serde_json::to_string(headers).expect("headers are plain text");
        self.seal(tenant, subscription, HEADERS, &Secret::new(json))
    }

    /// A subscription's TLS material, sealed, or that it has none.
    pub fn seal_tls(&self, tenant: &str, subscription: &str, tls: Option<&Tls>) -> SealedSecret {
        self.seal(tenant, subscription, TLS, &Tls::text(tls))
    }

    /// A fresh private key for `v1a`, sealed.
    pub fn seal_new_key(&self, tenant: &str, subscription: &str) -> SealedSecret {
        self.seal(tenant, subscription, &id::new(KEY_PREFIX), SigningKey::generate().text())
    }

    /// What a subscription's rows hide.
    pub async fn secrets(&self, tenant: &str, subscription: &str) -> Result<OpenSecrets, Error> {
        let secrets = self.inner.store.secrets(tenant, &[subscription]).await?;
        let secrets: Vec<SealedSecret> = secrets.into_iter().map(|(_, secret)| secret).collect();
        open_secrets(&self.inner.vault, tenant, subscription, &secrets)
    }
}

pub(crate) fn place(subscription: &str, id: &str) -> String {
    format!("subscription/{subscription}/{id}")
}

/// A subscription's secrets, opened.
pub struct OpenSecrets {
    signing: Vec<SigningSecret>,
    keys: Vec<SigningKey>,
    pub headers: BTreeMap<String, String>,
    pub tls: Option<Tls>,
}

impl OpenSecrets {
    /// Secrets and keys that are in force, whether the present settings sign with them or not.
    pub fn live(&self) -> usize {
        self.signing.len() + self.keys.len()
    }

    pub fn public_keys(&self) -> Vec<String> {
        self.keys.iter().map(SigningKey::public_key).collect()
    }

    /// One that a rotation replaced ends, and then nothing would sign `v1a`.
    pub fn has_lasting_key(&self) -> bool {
        self.keys.iter().any(SigningKey::is_lasting)
    }
}

fn open_secrets(
    vault: &Vault,
    tenant: &str,
    subscription: &str,
    secrets: &[SealedSecret],
) -> Result<OpenSecrets, Error> {
    let mut opened = OpenSecrets { signing: Vec::new(), keys: Vec::new(), headers: BTreeMap::new(), tls: None };
    for secret in secrets {
        let text = vault.open(Place { tenant, row: &place(subscription, &secret.id) }, &secret.sealed)?;
        let ends_s = secret.expires_at.map(|at| u64::try_from(at.unix_timestamp()).unwrap_or(0));
        if secret.id == HEADERS {
            opened.headers = serde_json::from_str(text.expose()).unwrap_or_default();
        } else if secret.id == TLS {
            opened.tls = Tls::from_text(&text);
        } else if secret.id.starts_with(KEY_PREFIX) {
            opened.keys.push(SigningKey::parse("signing_key", text.expose())?.until(ends_s));
        } else {
            opened.signing.push(SigningSecret::parse("secret", text.expose())?.until(ends_s));
        }
    }
    Ok(opened)
}

fn compile(row: &SubscriptionRow, reach: Option<Reach>, health: Arc<Health>) -> Result<Endpoint, Error> {
    let Settings { event_types, filter, rate_limit, max_concurrency, timeout, retry_schedule, ordering, .. } =
        &row.settings;
    Ok(Endpoint {
        id: row.id.as_str().into(),
        tenant: row.tenant.as_str().into(),
        matcher: Matcher::parse("event_types", event_types)?,
        filter: filter.as_ref().map(|filter| Filter::new("filter", filter)).transpose()?,
        reach,
        retry: RetryPolicy::new(retry_schedule.clone()),
        timeout: timeout.0,
        ordering: *ordering,
        enabled: row.enabled,
        takes_events: Standing::of(row.enabled, row.disabled_reason.as_deref()) != Standing::Disabled,
        rate_limit: *rate_limit,
        max_concurrency: *max_concurrency,
        guarded: Guarded::new(&row.tenant, &row.id, *rate_limit, *max_concurrency)?,
        health,
        failing_since: row.failing_since,
        is_circuit_open: AtomicBool::new(row.circuit_opened_at.is_some()),
        circuit_opened_at: row.circuit_opened_at,
    })
}

/// A header that can be sent; the error names it.
pub fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), Invalid> {
    platform::http_client::check_header(name, value)
        .map_err(|refused| Invalid::new(format!("headers.{name}"), refused.detail))
}
