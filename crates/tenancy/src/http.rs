//! `/admin/tenants`, their keys, `/admin/audit`, and `/v1/me`: who am I?

use std::time::Duration;

use axum::{extract::State, http::StatusCode};
use platform::{
    config::Span,
    http::{Json, OptionalJson, Page, PageQuery, Path, Query, cursor, no_cursor},
    id,
    problem::Problem,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    Tenancy, check,
    door::{Caller, DEFAULT_TENANT},
    model::{ApiKey, AuditEntry, Tenant},
    scope::{Role, Scope},
};

const DEFAULT_GRACE: Duration = Duration::from_secs(24 * 3600);

/// The admin routes, to be put behind the door with everyone else's.
pub fn routes() -> OpenApiRouter<Tenancy> {
    OpenApiRouter::new()
        .routes(routes!(create_tenant, list_tenants))
        .routes(routes!(get_tenant, update_tenant, delete_tenant))
        .routes(routes!(create_key, list_keys))
        .routes(routes!(rotate_key))
        .routes(routes!(revoke_key))
        .routes(routes!(list_audit))
        .routes(routes!(me))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewTenant {
    /// Chosen by you (lower-case letters, digits, `-` and `_`), or made here.
    id: Option<String>,
    #[schema(example = "Acme Ltd")]
    name: String,
}

/// Create a tenant
#[utoipa::path(post, path = "/admin/tenants", tag = "admin", request_body = NewTenant, responses(
    (status = 201, body = Tenant),
    (status = 409, description = "the id is taken (`tenant_exists`), or was once (`tenant_deleted`)", body = Problem)))]
async fn create_tenant(
    State(tenancy): State<Tenancy>,
    caller: Caller,
    Json(new): Json<NewTenant>,
) -> Result<(StatusCode, Json<Tenant>), Problem> {
    caller.require_admin()?;
    let name = check::name(&new.name).map_err(invalid("name"))?;
    let id = match new.id {
        Some(id) => id::check(&id).map_err(invalid("id"))?.to_owned(),
        None => id::new("tnt"),
    };
    match tenancy.store().create_tenant(&caller.actor, &id, name).await {
        Ok(created) => Ok((StatusCode::CREATED, Json(created))),
        Err(error) if error.is_duplicate() => Err(taken(tenancy.store().is_deleted(&id).await?, &id)),
        Err(error) => Err(error.into()),
    }
}

/// List tenants
#[utoipa::path(get, path = "/admin/tenants", tag = "admin", params(PageQuery), responses((status = 200, body = Page<Tenant>)))]
async fn list_tenants(
    State(tenancy): State<Tenancy>,
    caller: Caller,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<Tenant>>, Problem> {
    caller.require_admin()?;
    let limit = page.limit()?;
    if let Some(after) = &page.after
        && tenancy.store().tenant(after).await?.is_none()
        && !tenancy.store().is_deleted(after).await?
    {
        return Err(no_cursor());
    }
    let rows = tenancy.store().tenants(page.after.as_deref(), limit + 1).await?;
    Ok(Json(Page::from_rows(rows, limit, |tenant| &tenant.id)))
}

/// Get a tenant
#[utoipa::path(get, path = "/admin/tenants/{tenant}", tag = "admin", responses(
    (status = 200, body = Tenant), (status = 404, body = Problem)))]
async fn get_tenant(
    State(tenancy): State<Tenancy>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Tenant>, Problem> {
    visible(&tenancy, &caller, &id).await.map(Json)
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct TenantChange {
    name: String,
}

/// Rename a tenant
#[utoipa::path(patch, path = "/admin/tenants/{tenant}", tag = "admin", request_body = TenantChange, responses(
    (status = 200, body = Tenant), (status = 404, body = Problem)))]
async fn update_tenant(
    State(tenancy): State<Tenancy>,
    caller: Caller,
    Path(id): Path<String>,
    Json(change): Json<TenantChange>,
) -> Result<Json<Tenant>, Problem> {
    caller.require_admin()?;
    let name = check::name(&change.name).map_err(invalid("name"))?;
    let renamed = tenancy.store().rename_tenant(&caller.actor, &id, name).await?;
    renamed.map(Json).ok_or_else(|| Problem::not_found("tenant", &id))
}

/// Delete a tenant
///
/// Its keys, subscriptions, limit rules and policies of gates end with it, within a second in every process, and nothing
/// more is sent for it. Its events and deliveries can no longer be reached; they stay until they are as old as the
/// retention says. Its id is never given out again.
#[utoipa::path(delete, path = "/admin/tenants/{tenant}", tag = "admin", responses(
    (status = 204), (status = 404, body = Problem), (status = 409, description = "the default tenant stays", body = Problem)))]
async fn delete_tenant(
    State(tenancy): State<Tenancy>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    caller.require_admin()?;
    if id == DEFAULT_TENANT {
        return Err(Problem::conflict(
            "default_tenant",
            "the default tenant cannot be deleted: calls without a tenant mean it",
        ));
    }
    if !tenancy.delete(&caller.actor, &id).await? {
        return Err(Problem::not_found("tenant", &id));
    }
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewKey {
    /// What or who the key is for.
    #[schema(example = "billing service")]
    name: String,
    /// A usual set of scopes; `editor` unless `scopes` is given.
    role: Option<Role>,
    /// Exactly what the key may do, instead of a role.
    scopes: Option<Vec<Scope>>,
    /// The key ends after this time; without it, never.
    #[schema(value_type = Option<String>, example = "90d")]
    expires_in: Option<Span>,
}

/// A key with its secret, which is shown this once.
#[derive(Serialize, ToSchema)]
struct ShownKey {
    #[serde(flatten)]
    api_key: ApiKey,
    /// Keep it now: it is not stored and cannot be shown again.
    #[schema(example = "tgk_…")]
    key: String,
}

/// Create an API key
///
/// The answer holds the key itself, once.
#[utoipa::path(post, path = "/admin/tenants/{tenant}/keys", tag = "admin", request_body = NewKey, responses(
    (status = 201, body = ShownKey), (status = 403, body = Problem), (status = 404, body = Problem),
    (status = 409, description = "the tenant has 1000 live keys", body = Problem)))]
async fn create_key(
    State(tenancy): State<Tenancy>,
    caller: Caller,
    Path(tenant): Path<String>,
    Json(new): Json<NewKey>,
) -> Result<(StatusCode, Json<ShownKey>), Problem> {
    visible(&tenancy, &caller, &tenant).await?;
    caller.require(Scope::KeysWrite)?;
    let name = check::name(&new.name).map_err(invalid("name"))?;
    let scopes = chosen_scopes(new.role, new.scopes)?;
    // A key can hand on what it has, and nothing more.
    for scope in &scopes {
        caller.require(*scope)?;
    }
    let ttl = new.expires_in.map(|Span(ttl)| check::ttl(ttl)).transpose().map_err(invalid("expires_in"))?;
    let live_keys = tenancy.store().live_keys(&tenant).await?;
    check::room(live_keys).map_err(|detail| Problem::conflict("too_many_keys", detail))?;
    let made = tenancy.create_key(&caller.actor, &tenant, name, &scopes, ttl).await?;
    let (api_key, key) = made.ok_or_else(|| Problem::not_found("tenant", &tenant))?;
    Ok((StatusCode::CREATED, Json(ShownKey { api_key, key: key.expose().to_owned() })))
}

/// List a tenant's API keys
#[utoipa::path(get, path = "/admin/tenants/{tenant}/keys", tag = "admin", params(PageQuery), responses(
    (status = 200, body = Page<ApiKey>), (status = 403, body = Problem), (status = 404, body = Problem)))]
async fn list_keys(
    State(tenancy): State<Tenancy>,
    caller: Caller,
    Path(tenant): Path<String>,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<ApiKey>>, Problem> {
    visible(&tenancy, &caller, &tenant).await?;
    caller.require(Scope::KeysRead)?;
    let (limit, after) = (page.limit()?, cursor(page.after.as_deref(), "key")?);
    let rows = tenancy.store().keys(&tenant, after, limit + 1).await?;
    Ok(Json(Page::from_rows(rows, limit, |key| &key.id)))
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Rotation {
    /// How long the old key stays valid beside the new one.
    #[schema(value_type = Option<String>, example = "24h")]
    grace: Option<Span>,
}

/// Replace an API key
///
/// The old key stays valid for the grace time (24 hours), so that both work while its holders change over. At most two
/// keys of one line are live: what the old key itself replaced ends at once.
#[utoipa::path(post, path = "/admin/tenants/{tenant}/keys/{key}/rotate", tag = "admin", request_body = Rotation, responses(
    (status = 201, body = ShownKey), (status = 404, body = Problem),
    (status = 409, description = "the key is not live, or was replaced before", body = Problem)))]
async fn rotate_key(
    State(tenancy): State<Tenancy>,
    caller: Caller,
    Path((tenant, id)): Path<(String, String)>,
    OptionalJson(rotation): OptionalJson<Rotation>,
) -> Result<(StatusCode, Json<ShownKey>), Problem> {
    visible(&tenancy, &caller, &tenant).await?;
    caller.require(Scope::KeysWrite)?;
    let grace = rotation.grace.map_or(DEFAULT_GRACE, |Span(grace)| grace);
    let grace = check::grace(grace).map_err(invalid("grace"))?;
    let old = tenancy.store().key(&tenant, &id).await?.ok_or_else(|| Problem::not_found("key", &id))?;
    for scope in &old.scopes {
        caller.require(*scope)?;
    }
    let (api_key, key) = tenancy.rotate_key(&caller.actor, &old, grace).await?.ok_or_else(|| {
        Problem::conflict(
            "key_not_live",
            format!("key {id:?} is expired, revoked or replaced already: rotate the one that took its place"),
        )
    })?;
    Ok((StatusCode::CREATED, Json(ShownKey { api_key, key: key.expose().to_owned() })))
}

/// Revoke an API key at once
#[utoipa::path(delete, path = "/admin/tenants/{tenant}/keys/{key}", tag = "admin", responses(
    (status = 204), (status = 403, body = Problem), (status = 404, body = Problem)))]
async fn revoke_key(
    State(tenancy): State<Tenancy>,
    caller: Caller,
    Path((tenant, id)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    visible(&tenancy, &caller, &tenant).await?;
    caller.require(Scope::KeysWrite)?;
    if !tenancy.revoke_key(&caller.actor, &tenant, &id).await? {
        return Err(Problem::not_found("key", &id));
    }
    Ok(StatusCode::NO_CONTENT)
}

/// List who changed what
///
/// The admin key sees every tenant's entries, a key with `keys:read` its own. They are kept for
/// `security.audit_retention`.
#[utoipa::path(get, path = "/admin/audit", tag = "admin", params(PageQuery), responses((status = 200, body = Page<AuditEntry>)))]
async fn list_audit(
    State(tenancy): State<Tenancy>,
    caller: Caller,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<AuditEntry>>, Problem> {
    caller.require(Scope::KeysRead)?;
    let tenant = if caller.require_admin().is_ok() { None } else { Some(&*caller.tenant) };
    let (limit, after) = (page.limit()?, cursor(page.after.as_deref(), "aud")?);
    let rows = tenancy.store().audit(tenant, after, limit + 1).await?;
    Ok(Json(Page::from_rows(rows, limit, |entry| &entry.id)))
}

/// Who a key speaks for, and what it may do.
#[derive(Serialize, ToSchema)]
struct Me {
    #[schema(example = "default")]
    tenant: String,
    #[schema(example = "dev")]
    actor: String,
    scopes: Vec<Scope>,
}

/// Who am I?
#[utoipa::path(get, path = "/v1/me", tag = "admin", responses((status = 200, body = Me), (status = 401, body = Problem)))]
async fn me(caller: Caller) -> Json<Me> {
    Json(Me { tenant: caller.tenant.to_string(), actor: caller.actor.to_string(), scopes: caller.scopes() })
}

/// The tenant, if this caller may know of it: foreign and missing ones look the same.
async fn visible(tenancy: &Tenancy, caller: &Caller, id: &str) -> Result<Tenant, Problem> {
    let missing = || Problem::not_found("tenant", id);
    if !caller.can_see(id) {
        return Err(missing());
    }
    tenancy.store().tenant(id).await?.ok_or_else(missing)
}

/// What was made under an old id must not become a new tenant's.
fn taken(is_deleted: bool, id: &str) -> Problem {
    let (code, detail) = match is_deleted {
        true => {
            ("tenant_deleted", format!("tenant {id:?} was deleted, and its id is not given out again: choose another"))
        }
        false => ("tenant_exists", format!("there is a tenant {id:?} already: choose another id")),
    };
    Problem::conflict(code, detail).field("id")
}

fn chosen_scopes(role: Option<Role>, scopes: Option<Vec<Scope>>) -> Result<Vec<Scope>, Problem> {
    match (role, scopes) {
        (Some(_), Some(_)) => Err(Problem::invalid("scopes", "give either role or scopes, not both")),
        (role, None) => Ok(role.unwrap_or(Role::Editor).scopes()),
        (None, Some(scopes)) if scopes.is_empty() => Err(Problem::invalid("scopes", "a key needs at least one scope")),
        (None, Some(mut scopes)) => {
            scopes.sort_unstable();
            scopes.dedup();
            Ok(scopes)
        }
    }
}

fn invalid(field: &'static str) -> impl Fn(&'static str) -> Problem {
    move |detail| Problem::invalid(field, detail)
}
