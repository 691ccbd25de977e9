//! The door: who is calling, for which tenant, and what they may do.
//!
//! Every request of every role passes here and leaves with a [`Caller`], so nothing can be built without a tenant. A key
//! is asked for in the database at most once a second; what it may do is then remembered, and forgotten when it is revoked
//! here. Another replica notices a revocation within that second. While the database does not answer, who was known within
//! the last minutes still is: nobody can be revoked then but through a replica that it does answer.

mod guard;
mod headers;

use std::{future::Future, sync::Arc, time::Duration};

use aws_lc_rs::constant_time;
use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, StatusCode, request::Parts},
};
use moka::sync::Cache;
use platform::{db::Error, problem::Problem, secret::Secret, shutdown::Tasks};
use tokio::time::timeout;

pub use self::headers::Shown;
use crate::{
    config::Doors,
    key::{self, Hash, sha256},
    scope::Scope,
    store::Store,
};

/// The tenant that exists from the start, and that calls without a tenant mean.
pub const DEFAULT_TENANT: &str = "default";

const REMEMBERED_FOR: Duration = Duration::from_secs(1);
/// The same, while the database does not answer: longer than it takes to fail over.
const KNOWN_FOR: Duration = Duration::from_mins(5);
/// How long it is waited for where an older answer is known.
const PATIENCE: Duration = Duration::from_millis(500);
const REMEMBERED_KEYS: u64 = 10_000;

/// Who is calling. Handlers take it as an argument; without it there is no tenant to work for.
#[derive(Clone, Debug)]
pub struct Caller {
    pub tenant: Arc<str>,
    /// For the audit log: `admin`, `dev`, or the id of a key.
    pub actor: Arc<str>,
    reach: Reach,
}

#[derive(Clone, Debug)]
enum Reach {
    /// The admin key, or dev mode: any tenant, anything.
    Everything,
    /// An API key: its own tenant, its scopes.
    Scopes(Arc<[Scope]>),
}

impl Caller {
    pub fn require(&self, scope: Scope) -> Result<(), Problem> {
        match &self.reach {
            Reach::Scopes(scopes) if !scopes.contains(&scope) => Err(Problem::new(
                StatusCode::FORBIDDEN,
                "missing_scope",
                format!("this key lacks the scope {scope}: use a key that has it, or make one"),
            )),
            _ => Ok(()),
        }
    }

    /// Only the admin key (or dev mode) may.
    pub fn require_admin(&self) -> Result<(), Problem> {
        match self.reach {
            Reach::Everything => Ok(()),
            Reach::Scopes(_) => {
                Err(Problem::new(StatusCode::FORBIDDEN, "admin_only", "only the admin key may do this"))
            }
        }
    }

    /// May this caller see that tenant at all? To a key, other tenants do not exist.
    pub fn can_see(&self, tenant: &str) -> bool {
        matches!(self.reach, Reach::Everything) || *self.tenant == *tenant
    }

    pub fn scopes(&self) -> Vec<Scope> {
        match &self.reach {
            Reach::Everything => Scope::ALL.to_vec(),
            Reach::Scopes(scopes) => scopes.to_vec(),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get::<Caller>().cloned().ok_or_else(|| {
            tracing::error!(path = parts.uri.path(), "A route was mounted outside the door.");
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "this route is not guarded")
        })
    }
}

/// Stands in front of a role's routes. Cheap to clone.
#[derive(Clone)]
pub struct Door {
    inner: Arc<Inner>,
}

struct Inner {
    admin_key: Option<[u8; 32]>,
    /// Who shows the admin key, or comes in dev mode, for the default tenant.
    anyone: Caller,
    store: Store,
    tasks: Tasks,
    keys: Memory<Hash, Caller>,
    tenants: Memory<String, Arc<str>>,
}

/// What the database said: for a moment it is not asked again, and for minutes it may be away.
struct Memory<K, V> {
    fresh: Cache<K, V>,
    known: Cache<K, V>,
}

impl<K: Eq + std::hash::Hash + Clone + Send + Sync + 'static, V: Clone + Send + Sync + 'static> Memory<K, V> {
    fn new() -> Self {
        let lasting = |time| Cache::builder().max_capacity(REMEMBERED_KEYS).time_to_live(time).build();
        Memory { fresh: lasting(REMEMBERED_FOR), known: lasting(KNOWN_FOR) }
    }

    fn remember(&self, key: K, value: V) {
        self.known.insert(key.clone(), value.clone());
        self.fresh.insert(key, value);
    }

    fn forget_all(&self) {
        self.fresh.invalidate_all();
        self.known.invalidate_all();
    }

    /// The answer to a question about a key, or, where it does not come, what is known.
    async fn ask<T>(&self, key: &K, question: impl Future<Output = Result<T, Error>>) -> Result<Result<T, V>, Error> {
        let Some(known) = self.known.get(key) else { return question.await.map(Ok) };
        if let Ok(Ok(answer)) = timeout(PATIENCE, question).await {
            self.known.invalidate(key);
            return Ok(Ok(answer));
        }
        self.fresh.insert(key.clone(), known.clone());
        Ok(Err(known))
    }
}

/// What can be said of a caller without asking the database.
enum Recalled<'a> {
    Caller(Caller),
    Key(Hash),
    /// For whom the admin key acts.
    Tenant(&'a str),
}

impl Door {
    pub fn new(doors: &Doors, store: Store, tasks: Tasks) -> Self {
        let (admin_key, actor) = match doors {
            Doors::Dev => (None, "dev"),
            Doors::Locked { admin_key } => (Some(sha256(admin_key.expose())), "admin"),
        };
        let anyone = Caller { tenant: DEFAULT_TENANT.into(), actor: actor.into(), reach: Reach::Everything };
        let (keys, tenants) = (Memory::new(), Memory::new());
        Door { inner: Arc::new(Inner { admin_key, anyone, store, tasks, keys, tenants }) }
    }

    /// The routes, each behind this door.
    pub fn guard(&self, router: axum::Router) -> axum::Router {
        router.layer(self.clone())
    }

    /// A key was revoked, replaced or deleted here: ask again.
    pub fn forget(&self) {
        self.inner.keys.forget_all();
        self.inner.tenants.forget_all();
    }

    /// Like a request with these headers, for gRPC over HTTP/2, which no web page can speak to a plain port.
    pub async fn caller_by_headers(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        let shown = Shown::by_headers(headers, None);
        let caller = self.ask(self.recall(shown.key()?, shown.tenant()?)?).await?;
        shown.refuse_other_tenant(&caller).map(|()| caller)
    }

    /// Who shows this key, or none. `tenant` is whom the admin key, or dev mode, acts for; a key has its own.
    pub async fn caller(&self, presented: Option<&Secret>, tenant: Option<&str>) -> Result<Caller, Problem> {
        self.ask(self.recall(presented.map(Secret::expose), tenant)?).await
    }

    /// Who sent a request.
    pub async fn sender(&self, shown: &Shown<'_>) -> Result<Caller, Problem> {
        let caller = self.ask(self.recall_sender(shown)?).await?;
        shown.refuse_other_tenant(&caller).map(|()| caller)
    }

    fn recall_sender<'a>(&self, shown: &Shown<'a>) -> Result<Recalled<'a>, Problem> {
        let presented = shown.key()?;
        if self.inner.admin_key.is_none() && !presented.is_some_and(key::is_ours) {
            shown.refuse_other_sites()?;
        }
        let recalled = self.recall(presented, shown.tenant()?)?;
        if let Recalled::Caller(caller) = &recalled {
            shown.refuse_other_tenant(caller)?;
        }
        Ok(recalled)
    }

    fn recall<'a>(&self, presented: Option<&str>, tenant: Option<&'a str>) -> Result<Recalled<'a>, Problem> {
        let Inner { admin_key, anyone, keys, tenants, .. } = &*self.inner;
        let by_key = match (admin_key, presented) {
            (None, presented) => presented.filter(|key| key::is_ours(key)),
            (Some(_), None) => {
                let detail = "send your key as `Authorization: Bearer <key>` or `x-api-key: <key>`";
                return Err(unauthorized("missing_key", detail));
            }
            // Hashes are compared, in constant time: neither length nor prefix of the admin key can be measured.
            (Some(admin), Some(key)) => {
                Some(key).filter(|key| constant_time::verify_slices_are_equal(admin, &sha256(key)).is_err())
            }
        };
        if let Some(key) = by_key {
            let hash = key::hash(key).ok_or_else(unknown_key)?;
            return Ok(keys.fresh.get(&hash).map_or(Recalled::Key(hash), Recalled::Caller));
        }
        let Some(id) = tenant else { return Ok(Recalled::Caller(anyone.clone())) };
        let known = tenants.fresh.get(id).map(|tenant| Caller { tenant, ..anyone.clone() });
        Ok(known.map_or(Recalled::Tenant(id), Recalled::Caller))
    }

    async fn ask(&self, recalled: Recalled<'_>) -> Result<Caller, Problem> {
        match recalled {
            Recalled::Caller(caller) => Ok(caller),
            Recalled::Key(hash) => self.find_key(hash).await,
            Recalled::Tenant(id) => self.find_tenant(id).await,
        }
    }

    async fn find_key(&self, hash: Hash) -> Result<Caller, Problem> {
        let Inner { store, keys, tasks, .. } = &*self.inner;
        let found = match keys.ask(&hash, store.find_key(&hash)).await? {
            Ok(found) => found.ok_or_else(unknown_key)?,
            Err(known) => return Ok(known),
        };
        if found.is_revoked {
            return Err(unauthorized("revoked_key", "this key was revoked: use another"));
        }
        if found.is_expired {
            return Err(unauthorized("expired_key", "this key has expired: use another"));
        }
        let caller = Caller {
            tenant: found.tenant_id.as_str().into(),
            actor: found.id.as_str().into(),
            reach: Reach::Scopes(found.scopes.into()),
        };
        keys.remember(hash, caller.clone());
        if found.is_use_unrecorded {
            let store = store.clone();
            tasks.spawn("key use", async move {
                if let Err(error) = store.touch_key(&found.tenant_id, &found.id).await {
                    tracing::warn!(key = found.id, %error, "The last use of a key was not recorded.");
                }
            });
        }
        Ok(caller)
    }

    async fn find_tenant(&self, id: &str) -> Result<Caller, Problem> {
        let Inner { store, tenants, anyone, .. } = &*self.inner;
        let id = id.to_owned();
        let found = match tenants.ask(&id, store.tenant(&id)).await? {
            Ok(found) => found.ok_or_else(|| Problem::not_found("tenant", &id).field("x-tenant"))?,
            Err(tenant) => return Ok(Caller { tenant, ..anyone.clone() }),
        };
        let tenant: Arc<str> = found.id.into();
        tenants.remember(id, Arc::clone(&tenant));
        Ok(Caller { tenant, ..anyone.clone() })
    }
}

fn unknown_key() -> Problem {
    unauthorized("invalid_key", "this key is not known here")
}

fn unauthorized(code: &'static str, detail: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, code, detail)
}
