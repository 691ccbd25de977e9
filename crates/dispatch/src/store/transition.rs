//! Changes of a subscription's standing that are told: the change and the event that tells of it are one commit, and only
//! who makes the change tells of it.

use platform::{
    db::{Database, Error, Query, postgres::Postgres, sqlite::Sqlite},
    query,
};
use rusqlite::{OptionalExtension, params_from_iter};
use tokio_postgres::types::ToSql;

use super::{NewEvent, Store, postgres::raise, sqlite};

/// Every change moves the version on, so that all replicas read it.
const BUMP: Query = query!("bump_version");

/// When a subscription is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disable {
    AtOnce,
    /// It has done nothing but fail for [`crate::delivery::DISABLE_AFTER`], as the database knows it.
    IfFailing,
}

impl Store {
    /// Switches it off with a reason; false if it is off or gone already, or does not fail as long as it would have to.
    pub async fn disable_subscription(
        &self,
        tenant: &str,
        id: &str,
        reason: &str,
        disable: Disable,
        raises: Option<NewEvent>,
    ) -> Result<bool, Error> {
        let query = match disable {
            Disable::AtOnce => query!("disable_subscription"),
            Disable::IfFailing => query!("disable_failing"),
        };
        self.change(query, vec![tenant.into(), id.into(), reason.into()], raises).await
    }

    /// Notes that its circuit is open, or closed again; false if that is known.
    pub async fn mark_circuit(
        &self,
        tenant: &str,
        id: &str,
        is_open: bool,
        raises: Option<NewEvent>,
    ) -> Result<bool, Error> {
        let query = if is_open { query!("open_circuit") } else { query!("close_circuit") };
        self.change(query, vec![tenant.into(), id.into()], raises).await
    }

    async fn change(&self, query: Query, values: Vec<String>, raises: Option<NewEvent>) -> Result<bool, Error> {
        match &self.database {
            Database::Sqlite(database) => change_sqlite(database, query, values, raises).await,
            Database::Postgres(database) => {
                database.in_time(change_postgres(database, query, &values, raises.as_ref())).await
            }
        }
    }
}

async fn change_sqlite(
    database: &Sqlite,
    query: Query,
    values: Vec<String>,
    raises: Option<NewEvent>,
) -> Result<bool, Error> {
    database
        .write(move |connection| {
            connection.prepare_cached(BUMP.sqlite)?.query_row([], |_| Ok(()))?;
            let mut statement = connection.prepare_cached(query.sqlite)?;
            let changed = statement.query_row(params_from_iter(&values), |_| Ok(())).optional()?;
            if changed.is_some()
                && let Some(event) = &raises
            {
                sqlite::raise(connection, event, sqlite::now(connection)?)?;
            }
            Ok(changed.is_some())
        })
        .await
}

async fn change_postgres(
    database: &Postgres,
    query: Query,
    values: &[String],
    raises: Option<&NewEvent>,
) -> Result<bool, Error> {
    let mut client = database.client().await?;
    let transaction = client.transaction().await?;
    let bump = transaction.prepare_cached(BUMP.postgres).await?;
    transaction.execute(&bump, &[]).await?;
    let statement = transaction.prepare_cached(query.postgres).await?;
    let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
    let is_changed = transaction.query_opt(&statement, &values).await?.is_some();
    if is_changed {
        raise(&transaction, raises.as_slice()).await?;
    }
    transaction.commit().await?;
    Ok(is_changed)
}
