//! Tenants, keys and audit in the database. Each change and its audit entry are one transaction.

#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, time::Duration};

use platform::{
    db::{Database, Error, Migrations, Row, Step, Value},
    id, query,
};

use crate::{
    key::Hash,
    model::{ApiKey, AuditEntry, Tenant},
    scope,
};

/// The schema of this crate.
pub const MIGRATIONS: Migrations = Migrations {
    name: "tenancy",
    sqlite: &[
        ("V1__tenancy", include_str!("../../migrations/sqlite/V1__tenancy.sql")),
        ("V2__deleted", include_str!("../../migrations/sqlite/V2__deleted.sql")),
    ],
    postgres: &[
        ("V1__tenancy", include_str!("../../migrations/postgres/V1__tenancy.sql")),
        ("V2__deleted", include_str!("../../migrations/postgres/V2__deleted.sql")),
    ],
};

/// So that a write never waits long behind it.
const FORGOTTEN_AT_A_TIME: i64 = 1000;

#[derive(Clone)]
pub struct Store(Database);

/// A key as its holder shows it: what the door decides by.
#[derive(Clone, Debug)]
pub struct FoundKey {
    pub id: String,
    pub tenant_id: String,
    pub scopes: Vec<scope::Scope>,
    pub is_revoked: bool,
    pub is_expired: bool,
    /// More than a minute has passed since its last use was written down.
    pub is_use_unrecorded: bool,
}

/// What a new key is made of. The key itself never comes here.
pub struct NewKey<'a> {
    pub name: &'a str,
    pub hash: Hash,
    pub hint: String,
    pub scopes: &'a [scope::Scope],
    pub ttl: Option<Duration>,
}

impl Store {
    pub fn new(database: Database) -> Self {
        Store(database)
    }

    pub async fn create_tenant(&self, actor: &str, id: &str, name: &str) -> Result<Tenant, Error> {
        let insert = query!("insert_tenant").with([id.into(), name.into()]).must_match();
        let rows = self.0.transact([insert, audit(id, actor, "tenant.created", id)]).await?;
        Ok(rows.and_then(|[rows, _]| first(rows, tenant)).expect("an insert returns its row"))
    }

    pub async fn tenant(&self, id: &str) -> Result<Option<Tenant>, Error> {
        Ok(first(self.0.fetch(query!("get_tenant").with([id.into()])).await?, tenant))
    }

    /// Those of the ids that are a tenant's.
    pub async fn tenants_of(&self, ids: &BTreeSet<&str>) -> Result<Vec<String>, Error> {
        let ids = serde_json::json!(ids).to_string();
        Ok(self
            .0
            .fetch(query!("tenants_of").with([ids.as_str().into()]))
            .await?
            .iter()
            .map(|row| row.text("id"))
            .collect())
    }

    pub async fn tenants(&self, after: Option<&str>, limit: u32) -> Result<Vec<Tenant>, Error> {
        let rows = self.0.fetch(query!("list_tenants").with([after.into(), limit.into()])).await?;
        Ok(rows.iter().map(tenant).collect())
    }

    pub async fn rename_tenant(&self, actor: &str, id: &str, name: &str) -> Result<Option<Tenant>, Error> {
        let rename = query!("rename_tenant").with([id.into(), name.into()]).must_match();
        let rows = self.0.transact([rename, audit(id, actor, "tenant.renamed", id)]).await?;
        Ok(rows.and_then(|[rows, _]| first(rows, tenant)))
    }

    /// Deletes the tenant, all its keys, and what the roles end with it; false if there is none.
    pub async fn delete_tenant(&self, actor: &str, id: &str, endings: Vec<Step>) -> Result<bool, Error> {
        let delete = query!("delete_tenant").with([id.into()]).must_match();
        let mut steps = vec![delete, query!("delete_keys").with([id.into()]), audit(id, actor, "tenant.deleted", id)];
        steps.extend(endings);
        Ok(self.0.transact_all(steps).await?.is_some())
    }

    /// Was there a tenant with this id?
    pub async fn is_deleted(&self, id: &str) -> Result<bool, Error> {
        Ok(!self.0.fetch(query!("get_deleted_tenant").with([id.into()])).await?.is_empty())
    }

    /// `None`: there is no such tenant any more.
    pub async fn create_key(&self, actor: &str, tenant: &str, new: &NewKey<'_>) -> Result<Option<ApiKey>, Error> {
        let id = id::new("key");
        let insert = insert_key(tenant, &id, new);
        let entry = audit(tenant, actor, "key.created", &id);
        let rows = self.0.transact([keep_tenant(tenant), insert, entry]).await?;
        Ok(rows.and_then(|[_, rows, _]| first(rows, api_key)))
    }

    pub async fn key(&self, tenant: &str, id: &str) -> Result<Option<ApiKey>, Error> {
        // The list before the id's successor starts with the id itself.
        let cursor = format!("{id}\u{1}");
        let keys = self.keys(tenant, Some(&cursor), 1).await?;
        Ok(keys.into_iter().find(|key| key.id == id))
    }

    pub async fn keys(&self, tenant: &str, after: Option<&str>, limit: u32) -> Result<Vec<ApiKey>, Error> {
        let rows = self.0.fetch(query!("list_keys").with([tenant.into(), after.into(), limit.into()])).await?;
        Ok(rows.iter().map(api_key).collect())
    }

    /// Puts a new key in an old one's place; `None` if the old one is not live or was replaced before.
    pub async fn rotate_key(
        &self,
        actor: &str,
        tenant: &str,
        old_id: &str,
        grace: Duration,
        new: &NewKey<'_>,
    ) -> Result<Option<ApiKey>, Error> {
        let id = id::new("key");
        let replace = query!("replace_key")
            .with([tenant.into(), old_id.into(), id.as_str().into(), milliseconds(grace)])
            .must_match();
        let end = query!("end_replaced_keys").with([tenant.into(), old_id.into()]);
        let insert = insert_key(tenant, &id, new);
        let entry = audit(tenant, actor, "key.rotated", old_id);
        let rows = self.0.transact([keep_tenant(tenant), replace, end, insert, entry]).await?;
        Ok(rows.and_then(|[_, _, _, rows, _]| first(rows, api_key)))
    }

    pub async fn revoke_key(&self, actor: &str, tenant: &str, id: &str) -> Result<bool, Error> {
        let revoke = query!("revoke_key").with([tenant.into(), id.into()]).must_match();
        Ok(self.0.transact([revoke, audit(tenant, actor, "key.revoked", id)]).await?.is_some())
    }

    /// How many keys of a tenant open the door.
    pub async fn live_keys(&self, tenant: &str) -> Result<i64, Error> {
        let rows = self.0.fetch(query!("count_live_keys").with([tenant.into()])).await?;
        Ok(first(rows, |row| row.int("live")).unwrap_or_default())
    }

    pub async fn find_key(&self, hash: &Hash) -> Result<Option<FoundKey>, Error> {
        let rows = self.0.fetch(query!("find_key").with([hash.0.as_slice().into()])).await?;
        Ok(first(rows, |row| FoundKey {
            id: row.text("id"),
            tenant_id: row.text("tenant_id"),
            scopes: scope::split(&row.text("scopes")),
            is_revoked: row.flag("is_revoked"),
            is_expired: row.flag("is_expired"),
            is_use_unrecorded: row.flag("is_use_unrecorded"),
        }))
    }

    pub async fn touch_key(&self, tenant: &str, id: &str) -> Result<(), Error> {
        self.0.transact([query!("touch_key").with([tenant.into(), id.into()])]).await.map(drop)
    }

    pub async fn audit(&self, tenant: Option<&str>, after: Option<&str>, limit: u32) -> Result<Vec<AuditEntry>, Error> {
        let rows = self.0.fetch(query!("list_audit").with([tenant.into(), after.into(), limit.into()])).await?;
        Ok(rows.iter().map(audit_entry).collect())
    }

    /// Ends audit entries, and keys that have ended, that are older than `retention`. Any number of replicas may do it
    /// at once. Returns how many went.
    pub async fn forget(&self, retention: Duration) -> Result<usize, Error> {
        let mut gone = 0;
        for query in [query!("delete_old_audit"), query!("delete_dead_keys")] {
            loop {
                let delete = query.with([milliseconds(retention), FORGOTTEN_AT_A_TIME.into()]);
                let deleted = self.0.transact([delete]).await?.map_or(0, |[rows]| rows.len());
                gone += deleted;
                if deleted == 0 {
                    break;
                }
            }
        }
        Ok(gone)
    }

    /// The ids of the master keys that secrets in this database were sealed with.
    pub async fn master_keys(&self) -> Result<Vec<String>, Error> {
        Ok(self.0.fetch(query!("list_master_keys").with([])).await?.iter().map(|row| row.text("id")).collect())
    }

    pub async fn remember_master_key(&self, id: &str) -> Result<(), Error> {
        self.0.transact([remember_master_key(id)]).await.map(drop)
    }
}

fn insert_key(tenant: &str, id: &str, new: &NewKey<'_>) -> Step {
    query!("insert_key")
        .with([
            tenant.into(),
            id.into(),
            new.name.into(),
            new.hash.0.as_slice().into(),
            new.hint.as_str().into(),
            scope::join(new.scopes).as_str().into(),
            new.ttl.map_or(Value::Null, milliseconds),
        ])
        .must_match()
}

/// The entry of a change in the audit log, to be written with it.
pub fn audit(tenant: &str, actor: &str, action: &str, target: &str) -> Step {
    let id = id::new("aud");
    query!("insert_audit").with([id.as_str().into(), tenant.into(), actor.into(), action.into(), target.into()])
}

/// The first step of whatever makes something that acts for a tenant: nothing is made for one that is deleted meanwhile.
pub fn keep_tenant(tenant: &str) -> Step {
    query!("keep_tenant").with([tenant.into()]).must_match()
}

/// A part of whatever writes a sealed secret: no start without this master key from then on.
pub fn remember_master_key(id: &str) -> Step {
    query!("insert_master_key").with([id.into()])
}

/// Nothing is sealed with this master key any more: a start can do without it.
pub fn forget_master_key(id: &str) -> Step {
    query!("delete_master_key").with([id.into()])
}

fn milliseconds(duration: Duration) -> Value {
    Value::Int(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}

fn first<T>(rows: Vec<Row>, read: impl Fn(&Row) -> T) -> Option<T> {
    rows.first().map(read)
}

fn tenant(row: &Row) -> Tenant {
    Tenant { id: row.text("id"), name: row.text("name"), created_at: row.time("created_at") }
}

fn api_key(row: &Row) -> ApiKey {
    ApiKey {
        id: row.text("id"),
        tenant_id: row.text("tenant_id"),
        name: row.text("name"),
        hint: row.text("hint"),
        scopes: scope::split(&row.text("scopes")),
        created_at: row.time("created_at"),
        expires_at: row.optional_time("expires_at"),
        revoked_at: row.optional_time("revoked_at"),
        last_used_at: row.optional_time("last_used_at"),
        replaced_by: row.optional_text("replaced_by"),
    }
}

fn audit_entry(row: &Row) -> AuditEntry {
    AuditEntry {
        id: row.text("id"),
        at: row.time("at"),
        tenant_id: row.text("tenant_id"),
        actor: row.text("actor"),
        action: row.text("action"),
        target: row.text("target"),
    }
}
