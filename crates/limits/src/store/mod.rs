//! The rules of the API in the database. Every change moves one counter, by which replicas know what to read again, and is
//! in the audit log.

#[cfg(test)]
mod tests;

use std::time::Duration;

use platform::{
    db::{Database, Error, Migrations, Row, Step},
    query,
};
use tenancy::audit;
use time::OffsetDateTime;

use crate::rule::Written;

/// The schema of this crate.
pub const MIGRATIONS: Migrations = Migrations {
    name: "limits",
    sqlite: &[
        ("V1__limits", include_str!("../../migrations/sqlite/V1__limits.sql")),
        ("V2__limits_pages", include_str!("../../migrations/sqlite/V2__limits_pages.sql")),
    ],
    postgres: &[
        ("V1__limits", include_str!("../../migrations/postgres/V1__limits.sql")),
        ("V2__limits_pages", include_str!("../../migrations/postgres/V2__limits_pages.sql")),
    ],
};

/// Rules that one tenant may have of its own.
pub(crate) const MOST_RULES: u32 = 10_000;
/// What all of them may be as JSON. In memory a short override is ten times as large.
pub(crate) const MOST_BYTES: u32 = 4 << 20;

/// A rule's row.
#[derive(Clone, Debug)]
pub(crate) struct RuleRow {
    pub(crate) id: String,
    pub(crate) tenant: String,
    pub(crate) written: Written,
    pub(crate) version: i64,
    pub(crate) created_at: OffsetDateTime,
    pub(crate) updated_at: OffsetDateTime,
}

/// What became of a rule.
#[derive(Debug)]
pub(crate) enum Change {
    Written(Box<RuleRow>),
    Deleted { tenant: String, id: String },
}

/// How far a replica has read; changes of one version are told apart by their ids.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    version: i64,
    id: String,
}

#[derive(Clone)]
pub(crate) struct Store {
    database: Database,
}

impl Store {
    pub(crate) fn new(database: Database) -> Self {
        Store { database }
    }

    /// Up to 1,000 changes behind `place`, the earliest first, and the place of the last.
    pub(crate) async fn changes(&self, place: &Place) -> Result<(Vec<Change>, Option<Place>), Error> {
        let step = query!("changed_rules").with([place.version.into(), place.id.as_str().into()]);
        let rows = self.database.fetch(step).await?;
        let last = rows.last().map(|row| Place { version: row.int("version"), id: row.text("id") });
        let change = |row: &Row| match row.optional_time("deleted_at") {
            Some(_) => Some(Change::Deleted { tenant: row.text("tenant_id"), id: row.text("id") }),
            None => rule(row).map(|row| Change::Written(Box::new(row))),
        };
        Ok((rows.iter().filter_map(change).collect(), last))
    }

    /// `None`: the id is taken, or there is no room.
    pub(crate) async fn create_rule(
        &self,
        actor: &str,
        tenant: &str,
        id: &str,
        written: &Written,
    ) -> Result<Option<RuleRow>, Error> {
        let json = json(written);
        let room = room(tenant, id, &json).must_match();
        let create = query!("create_rule").with([tenant.into(), id.into(), json.as_str().into()]).must_match();
        let entry = audit(tenant, actor, "rule.created", id);
        let done = self.database.transact([bump(), room, create, entry]).await?;
        Ok(done.and_then(|[_, _, rows, _]| rows.first().and_then(rule)))
    }

    /// `None`: there is no such rule, or it is no longer at this version, or there is no room for what it became.
    pub(crate) async fn replace_rule(
        &self,
        actor: &str,
        tenant: &str,
        id: &str,
        written: &Written,
        version: Option<i64>,
    ) -> Result<Option<RuleRow>, Error> {
        let json = json(written);
        let room = room(tenant, id, &json).must_match();
        let values = [tenant.into(), id.into(), json.as_str().into(), version.into()];
        let replace = query!("replace_rule").with(values).must_match();
        let entry = audit(tenant, actor, "rule.changed", id);
        let done = self.database.transact([bump(), room, replace, entry]).await?;
        Ok(done.and_then(|[_, _, rows, _]| rows.first().and_then(rule)))
    }

    /// Is there room for this rule beside the tenant's others?
    pub(crate) async fn has_room(&self, tenant: &str, id: &str, written: &Written) -> Result<bool, Error> {
        Ok(!self.database.fetch(room(tenant, id, &json(written))).await?.is_empty())
    }

    /// False: there is no such rule, or it is no longer at this version.
    pub(crate) async fn delete_rule(
        &self,
        actor: &str,
        tenant: &str,
        id: &str,
        version: Option<i64>,
    ) -> Result<bool, Error> {
        let delete = query!("delete_rule").with([tenant.into(), id.into(), version.into()]).must_match();
        Ok(self.database.transact([bump(), delete, audit(tenant, actor, "rule.deleted", id)]).await?.is_some())
    }

    /// Forgets what was deleted so long ago that every replica knows.
    pub(crate) async fn forget_deleted(&self, after: Duration) -> Result<(), Error> {
        let ms = i64::try_from(after.as_millis()).unwrap_or(i64::MAX);
        self.database.transact([query!("forget_rules").with([ms.into()])]).await.map(drop)
    }

    pub(crate) async fn rule(&self, tenant: &str, id: &str) -> Result<Option<RuleRow>, Error> {
        let rows = self.database.fetch(query!("get_rule").with([tenant.into(), id.into()])).await?;
        Ok(rows.first().and_then(rule))
    }

    /// Newest first, those before `after`.
    pub(crate) async fn rules(&self, tenant: &str, after: Option<&str>, limit: u32) -> Result<Vec<RuleRow>, Error> {
        let values = [tenant.into(), after.into(), limit.into()];
        let rows = self.database.fetch(query!("list_rules").with(values)).await?;
        Ok(rows.iter().filter_map(rule).collect())
    }
}

/// A tenant is deleted: its rules end with it.
pub fn end_tenant(tenant: &str) -> Vec<Step> {
    vec![bump(), query!("delete_rules").with([tenant.into()])]
}

fn bump() -> Step {
    query!("bump_version").with([])
}

/// Behind `bump`, whose lock makes one writer wait for the other.
fn room(tenant: &str, id: &str, json: &str) -> Step {
    let bytes = i64::try_from(json.len()).unwrap_or(i64::MAX);
    query!("room_for_rule").with([tenant.into(), id.into(), MOST_RULES.into(), MOST_BYTES.into(), bytes.into()])
}

fn json(written: &Written) -> String {
    serde_json::to_string(written).expect("a rule is plain data")
}

/// A row that this version cannot read (a newer one wrote it) is left out, loudly.
fn rule(row: &Row) -> Option<RuleRow> {
    let id = row.text("id");
    let written = serde_json::from_str(&row.text("rule"));
    let written =
        written.inspect_err(|error| tracing::error!(rule = id, %error, "A stored rule cannot be read.")).ok()?;
    Some(RuleRow {
        id,
        tenant: row.text("tenant_id"),
        written,
        version: row.int("version"),
        created_at: row.time("created_at"),
        updated_at: row.time("updated_at"),
    })
}
