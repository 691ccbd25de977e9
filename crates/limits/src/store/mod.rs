//! The rules of the API in the database. Every change moves one counter, by which replicas know what to read again.

#[cfg(test)]
mod tests;

use platform::{
    db::{Database, Error, Migrations, Row, Step, Value},
    query,
};
use time::OffsetDateTime;

use crate::rule::Written;

/// The schema of this crate.
pub const MIGRATIONS: Migrations = Migrations {
    name: "limits",
    sqlite: &[("V1__limits", include_str!("../../migrations/sqlite/V1__limits.sql"))],
    postgres: &[("V1__limits", include_str!("../../migrations/postgres/V1__limits.sql"))],
};

/// A rule's row.
#[derive(Clone, Debug)]
pub(crate) struct RuleRow {
    pub(crate) id: String,
    pub(crate) tenant: String,
    pub(crate) written: Written,
    pub(crate) version: i64,
    pub(crate) is_deleted: bool,
    pub(crate) created_at: OffsetDateTime,
    pub(crate) updated_at: OffsetDateTime,
}

#[derive(Clone)]
pub(crate) struct Store {
    database: Database,
}

impl Store {
    pub(crate) fn new(database: Database) -> Self {
        Store { database }
    }

    /// Up to 10,000 rows that changed after `version`, the earliest change first, and the version of the last.
    pub(crate) async fn changed_rules(&self, version: i64) -> Result<(Vec<RuleRow>, Option<i64>), Error> {
        let rows = self.database.fetch(query!("changed_rules").with([version.into()])).await?;
        let newest = rows.last().map(|row| row.int("version"));
        Ok((rows.iter().filter_map(rule).collect(), newest))
    }

    /// `None`: the id is taken.
    pub(crate) async fn create_rule(
        &self,
        tenant: &str,
        id: &str,
        written: &Written,
    ) -> Result<Option<RuleRow>, Error> {
        let create = query!("create_rule").with([tenant.into(), id.into(), json(written)]).must_match();
        let done = self.database.transact([bump(), create]).await?;
        Ok(done.and_then(|[_, rows]| rows.first().and_then(rule)))
    }

    /// `None`: there is no such rule, or it is no longer at this version.
    pub(crate) async fn replace_rule(
        &self,
        tenant: &str,
        id: &str,
        written: &Written,
        version: Option<i64>,
    ) -> Result<Option<RuleRow>, Error> {
        let values = [tenant.into(), id.into(), json(written), version.into()];
        let replace = query!("replace_rule").with(values).must_match();
        let done = self.database.transact([bump(), replace]).await?;
        Ok(done.and_then(|[_, rows]| rows.first().and_then(rule)))
    }

    /// False: there is no such rule, or it is no longer at this version.
    pub(crate) async fn delete_rule(&self, tenant: &str, id: &str, version: Option<i64>) -> Result<bool, Error> {
        let delete = query!("delete_rule").with([tenant.into(), id.into(), version.into()]).must_match();
        Ok(self.database.transact([bump(), delete]).await?.is_some())
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

fn json(written: &Written) -> Value {
    Value::Text(serde_json::to_string(written).expect("a rule is plain data"))
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
        is_deleted: row.optional_time("deleted_at").is_some(),
        created_at: row.time("created_at"),
        updated_at: row.time("updated_at"),
    })
}
