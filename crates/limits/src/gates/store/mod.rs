//! Gates in the database: policies that somebody wrote, and targets that were used.

use std::time::Duration;

use platform::{
    db::{Database, Error, Migrations, Row, Step, Value},
    query,
};
use time::OffsetDateTime;

use super::policy::Written;

#[cfg(test)]
mod tests;

/// The schema of gates.
pub const MIGRATIONS: Migrations = Migrations {
    name: "gates",
    sqlite: &[("V1__gates", include_str!("../../../migrations/sqlite/V1__gates.sql"))],
    postgres: &[("V1__gates", include_str!("../../../migrations/postgres/V1__gates.sql"))],
};

/// Targets without a policy that a tenant is known by. Beyond, they work and are not listed.
const MOST_LISTED: u32 = 10_000;

#[derive(Clone)]
pub(super) struct Store(Database);

/// A policy that changed; `None`: it was taken away.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) tenant: String,
    pub(super) target: String,
    pub(super) policy: Option<String>,
    pub(super) version: i64,
}

/// One line of the list.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) target: String,
    pub(super) policy: Option<Written>,
    pub(super) created_at: OffsetDateTime,
    pub(super) used_at: OffsetDateTime,
}

/// A tenant is deleted: the policies of its gates end with it.
pub fn end_tenant(tenant: &str) -> Vec<Step> {
    vec![query!("bump_version").with([]), query!("take_policies").with([tenant.into()])]
}

impl Store {
    pub(super) fn new(database: Database) -> Store {
        Store(database)
    }

    /// Writes a target's policy, or takes it away.
    pub(super) async fn put_policy(&self, tenant: &str, target: &str, policy: Option<&Written>) -> Result<(), Error> {
        let json = policy.map(|policy| serde_json::to_string(policy).expect("a policy is plain data"));
        let put = query!("put_policy").with([tenant.into(), target.into(), json.as_deref().into()]).must_match();
        self.0.transact([query!("bump_version").with([]), put]).await.map(drop)
    }

    /// Up to 10,000 policies that changed after `version`, the earliest change first.
    pub(super) async fn changes(&self, version: i64) -> Result<Vec<Change>, Error> {
        let rows = self.0.fetch(query!("changed_policies").with([version.into()])).await?;
        let change = |row: &Row| Change {
            tenant: row.text("tenant_id"),
            target: row.text("target"),
            policy: row.optional_text("policy"),
            version: row.int("version"),
        };
        Ok(rows.iter().map(change).collect())
    }

    /// By name.
    pub(super) async fn list(&self, tenant: &str, after: Option<&str>, limit: u32) -> Result<Vec<Listed>, Error> {
        let step = query!("list_gates").with([tenant.into(), after.into(), limit.into()]);
        let listed = |row: &Row| Listed {
            target: row.text("target"),
            policy: row.optional_text("policy").and_then(|json| serde_json::from_str(&json).ok()),
            created_at: row.time("created_at"),
            used_at: row.time("used_at"),
        };
        Ok(self.0.fetch(step).await?.iter().map(listed).collect())
    }

    /// These targets were used.
    pub(super) async fn touch(&self, used: &[(String, String)]) -> Result<(), Error> {
        for (tenant, target) in used {
            let step = query!("touch_gate").with([tenant.as_str().into(), target.as_str().into(), MOST_LISTED.into()]);
            self.0.transact([step]).await?;
        }
        Ok(())
    }

    /// Forgets targets that nobody has used for so long, unless they have a policy.
    pub(super) async fn forget(&self, unused_for: Duration) -> Result<(), Error> {
        let ms = i64::try_from(unused_for.as_millis()).unwrap_or(i64::MAX);
        self.0.transact([query!("forget_gates").with([Value::Int(ms)])]).await.map(drop)
    }
}
