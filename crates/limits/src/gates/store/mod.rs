//! Gates in the database: policies that somebody wrote, and targets that were used.

use std::time::Duration;

use platform::{
    db::{Database, Error, Migrations, Row, Step, Value},
    query,
};
use tenancy::audit;
use time::OffsetDateTime;

use super::policy::Written;

#[cfg(test)]
mod tests;

/// The schema of gates.
pub const MIGRATIONS: Migrations = Migrations {
    name: "gates",
    sqlite: &[
        ("V1__gates", include_str!("../../../migrations/sqlite/V1__gates.sql")),
        ("V2__gates_pages", include_str!("../../../migrations/sqlite/V2__gates_pages.sql")),
    ],
    postgres: &[
        ("V1__gates", include_str!("../../../migrations/postgres/V1__gates.sql")),
        ("V2__gates_pages", include_str!("../../../migrations/postgres/V2__gates_pages.sql")),
    ],
};

/// Targets without a policy that a tenant is known by. Beyond, they work and are not listed.
const MOST_LISTED: u32 = 10_000;
/// Policies that one tenant may store.
pub(super) const MOST_POLICIES: u32 = 10_000;

#[derive(Clone)]
pub(super) struct Store(Database);

/// A policy that changed; `None`: it was taken away.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) tenant: String,
    pub(super) target: String,
    pub(super) policy: Option<String>,
}

/// How far a replica has read; changes of one version are told apart by their targets.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    version: i64,
    target: String,
}

/// One line of the list.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) target: String,
    pub(crate) policy: Option<Written>,
    pub(crate) created_at: OffsetDateTime,
    pub(crate) used_at: OffsetDateTime,
}

/// A tenant is deleted: the policies of its gates end with it.
pub fn end_tenant(tenant: &str) -> Vec<Step> {
    vec![query!("bump_version").with([]), query!("take_policies").with([tenant.into()])]
}

impl Store {
    pub(super) fn new(database: Database) -> Store {
        Store(database)
    }

    /// Writes a target's policy; false: the tenant has no room for one more.
    pub(super) async fn put_policy(
        &self,
        actor: &str,
        tenant: &str,
        target: &str,
        policy: &Written,
    ) -> Result<bool, Error> {
        let json = serde_json::to_string(policy).expect("a policy is plain data");
        let values = [tenant.into(), target.into(), json.as_str().into(), MOST_POLICIES.into()];
        let put = query!("put_policy").with(values).must_match();
        let entry = audit(tenant, actor, "gate.policy_stored", target);
        Ok(self.0.transact([query!("bump_version").with([]), put, entry]).await?.is_some())
    }

    /// Takes a target's policy away, if it has one.
    pub(super) async fn take_policy(&self, actor: &str, tenant: &str, target: &str) -> Result<(), Error> {
        let take = query!("take_policy").with([tenant.into(), target.into()]).must_match();
        let entry = audit(tenant, actor, "gate.policy_taken", target);
        self.0.transact([query!("bump_version").with([]), take, entry]).await.map(drop)
    }

    /// Notes in the audit log what was ordered by hand.
    pub(super) async fn note_order(&self, actor: &str, tenant: &str, target: &str, action: &str) -> Result<(), Error> {
        self.0.transact([audit(tenant, actor, action, target)]).await.map(drop)
    }

    /// Up to 1,000 policies that changed behind `place`, the earliest change first, and the place of the last.
    pub(super) async fn changes(&self, place: &Place) -> Result<(Vec<Change>, Option<Place>), Error> {
        let step = query!("changed_policies").with([place.version.into(), place.target.as_str().into()]);
        let rows = self.0.fetch(step).await?;
        let last = rows.last().map(|row| Place { version: row.int("version"), target: row.text("target") });
        let change = |row: &Row| Change {
            tenant: row.text("tenant_id"),
            target: row.text("target"),
            policy: row.optional_text("policy"),
        };
        Ok((rows.iter().map(change).collect(), last))
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
