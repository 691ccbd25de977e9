//! The door: who is calling, for which tenant, and what they may do.
//!
//! Every request of every role passes here and leaves with a [`Caller`], so nothing can be built without a tenant. A key
//! is asked for in the database at most once a second; what it may do is then remembered, and forgotten when it is revoked
//! here. Another replica notices a revocation within that second.

use std::{net::IpAddr, sync::Arc, time::Duration};

use aws_lc_rs::constant_time;
use axum::{
    extract::{FromRequestParts, Request},
    http::{HeaderMap, StatusCode, Uri, header, request::Parts, uri::Authority},
    middleware::Next,
    response::{IntoResponse, Response},
};
use moka::sync::Cache;
use platform::{problem::Problem, secret::Secret, shutdown::Tasks};

use crate::{
    config::Doors,
    key::{self, Hash, sha256},
    scope::Scope,
    store::Store,
};

/// The tenant that exists from the start, and that calls without a tenant mean.
pub const DEFAULT_TENANT: &str = "default";

const REMEMBERED_FOR: Duration = Duration::from_secs(1);
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
    store: Store,
    tasks: Tasks,
    keys: Cache<Hash, Caller>,
    tenants: Cache<String, Arc<str>>,
}

impl Door {
    pub fn new(doors: &Doors, store: Store, tasks: Tasks) -> Self {
        let admin_key = match doors {
            Doors::Dev => None,
            Doors::Locked { admin_key } => Some(sha256(admin_key.expose())),
        };
        let keys = Cache::builder().max_capacity(REMEMBERED_KEYS).time_to_live(REMEMBERED_FOR).build();
        let tenants = Cache::builder().max_capacity(REMEMBERED_KEYS).time_to_live(REMEMBERED_FOR).build();
        Door { inner: Arc::new(Inner { admin_key, store, tasks, keys, tenants }) }
    }

    /// The routes, each behind this door.
    pub fn guard(&self, router: axum::Router) -> axum::Router {
        let door = self.clone();
        router.layer(axum::middleware::from_fn(move |request, next| door.clone().enter(request, next)))
    }

    /// A key was revoked, replaced or deleted here: ask again.
    pub fn forget(&self) {
        self.inner.keys.invalidate_all();
        self.inner.tenants.invalidate_all();
    }

    async fn enter(self, mut request: Request, next: Next) -> Response {
        match self.identify(request.uri(), request.headers()).await {
            Ok(caller) => {
                request.extensions_mut().insert(caller);
                next.run(request).await
            }
            Err(problem) => problem.into_response(),
        }
    }

    async fn identify(&self, uri: &Uri, headers: &HeaderMap) -> Result<Caller, Problem> {
        let presented = presented_key(headers)?;
        if self.inner.admin_key.is_none() && !presented.as_ref().is_some_and(|key| key::is_ours(key.expose())) {
            refuse_other_sites(uri, headers)?;
        }
        self.caller(presented.as_ref(), presented_tenant(headers)).await
    }

    /// Like a request with these headers, for protocols that no web page can speak.
    pub async fn caller_by_headers(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        self.caller(presented_key(headers)?.as_ref(), presented_tenant(headers)).await
    }

    /// Who shows this key, or none. `tenant` is whom the admin key, or dev mode, acts for; a key has its own.
    pub async fn caller(&self, presented: Option<&Secret>, tenant: Option<&str>) -> Result<Caller, Problem> {
        match (&self.inner.admin_key, presented) {
            (None, Some(key)) if key::is_ours(key.expose()) => self.by_key(key).await,
            (None, _) => self.everything("dev", tenant).await,
            (Some(_), None) => {
                Err(unauthorized("missing_key", "send your key as `Authorization: Bearer <key>` or `x-api-key: <key>`"))
            }
            // Hashes are compared, in constant time: neither length nor prefix of the admin key can be measured.
            (Some(admin), Some(key))
                if constant_time::verify_slices_are_equal(admin, &sha256(key.expose())).is_ok() =>
            {
                self.everything("admin", tenant).await
            }
            (Some(_), Some(key)) => self.by_key(key).await,
        }
    }

    async fn by_key(&self, presented: &Secret) -> Result<Caller, Problem> {
        let Inner { store, keys, tasks, .. } = &*self.inner;
        let unknown = || unauthorized("invalid_key", "this key is not known here");
        let hash = key::hash(presented.expose()).ok_or_else(unknown)?;
        if let Some(caller) = keys.get(&hash) {
            return Ok(caller);
        }
        let found = store.find_key(&hash).await?.ok_or_else(unknown)?;
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
        keys.insert(hash, caller.clone());
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

    async fn everything(&self, actor: &str, tenant: Option<&str>) -> Result<Caller, Problem> {
        let tenant = match tenant {
            None => DEFAULT_TENANT.into(),
            Some(id) => self.existing_tenant(id).await?,
        };
        Ok(Caller { tenant, actor: actor.into(), reach: Reach::Everything })
    }

    async fn existing_tenant(&self, id: &str) -> Result<Arc<str>, Problem> {
        if let Some(tenant) = self.inner.tenants.get(id) {
            return Ok(tenant);
        }
        let found = self.inner.store.tenant(id).await?;
        let tenant: Arc<str> = found.ok_or_else(|| Problem::not_found("tenant", id).field("x-tenant"))?.id.into();
        self.inner.tenants.insert(id.to_owned(), Arc::clone(&tenant));
        Ok(tenant)
    }
}

/// The key as sent, from either header; anything that is not readable text is no key.
fn presented_key(headers: &HeaderMap) -> Result<Option<Secret>, Problem> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let text = value.to_str().unwrap_or_default();
        let (scheme, key) = text.split_once(' ').unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("bearer") || key.trim().is_empty() {
            return Err(unauthorized("invalid_key", "write the header as `Authorization: Bearer <key>`"));
        }
        return Ok(Some(Secret::new(key.trim())));
    }
    Ok(headers.get("x-api-key").map(|value| Secret::new(value.to_str().unwrap_or_default())))
}

fn presented_tenant(headers: &HeaderMap) -> Option<&str> {
    headers.get("x-tenant").map(|value| value.to_str().unwrap_or_default())
}

fn unauthorized(code: &'static str, detail: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, code, detail)
}

/// Dev mode trusts this machine, but a browser on it also runs other people's pages: a page must not reach us through a
/// name of its own that resolves to loopback, nor post across origins.
fn refuse_other_sites(uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .or_else(|| uri.authority().map(Authority::as_str));
    let origin = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or_default());
    let origin_host = origin.map(|origin| origin.split_once("://").map_or(origin, |(_, host)| host));
    if [host, origin_host].into_iter().flatten().all(is_this_machine) {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::FORBIDDEN,
        "foreign_host",
        "without an admin key only localhost may be named here: use http://127.0.0.1 or set TIDEGATE_ADMIN_KEY",
    ))
}

fn is_this_machine(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host();
    let literal = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || literal.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::is_this_machine;

    #[test]
    fn only_loopback_names_are_this_machine() {
        for host in ["localhost", "localhost:8080", "127.0.0.1:8080", "127.0.0.1", "[::1]:8080", "LOCALHOST"] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in
            ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8080", "10.0.0.1", "", "null", "[::]"]
        {
            assert!(!is_this_machine(host), "{host}");
        }
    }
}
