//! The rows of jobs: made, looked at, claimed, ended.

use std::{collections::HashSet, time::Duration};

use platform::{
    db::{Error, Row, Value},
    id, query,
};
use tenancy::audit;
use time::OffsetDateTime;

use super::{Lease, Store, flights::ALL, milliseconds};
use crate::job::{Kind, Progress, Selection, State};

/// A job's row.
#[derive(Clone, Debug)]
pub struct JobRow {
    pub id: String,
    pub tenant: String,
    pub kind: Kind,
    pub state: State,
    pub selection: Selection,
    pub progress: Progress,
    pub error: Option<String>,
    pub fence: i64,
    pub created_at: OffsetDateTime,
    pub started_at: Option<OffsetDateTime>,
    pub finished_at: Option<OffsetDateTime>,
}

impl Store {
    /// Makes a job; `None` if the tenant has too many that have not ended.
    pub async fn create_job(
        &self,
        actor: &str,
        tenant: &str,
        kind: Kind,
        selection: &Selection,
    ) -> Result<Option<JobRow>, Error> {
        let id = id::new("job");
        let entry = audit(tenant, actor, &format!("job.{}", kind.as_str()), &id);
        let step = query!("insert_job").with([
            tenant.into(),
            Value::Text(id),
            kind.as_str().into(),
            json(selection),
            json(&Progress::default()),
        ]);
        let rows = self.database.transact([step.must_match(), entry]).await?;
        Ok(rows.and_then(|[rows, _]| rows.first().and_then(job)))
    }

    /// The place of the first id that no delivery of the tenant has.
    pub async fn first_unknown(&self, tenant: &str, ids: &[String]) -> Result<Option<usize>, Error> {
        if ids.is_empty() {
            return Ok(None);
        }
        self.land_some(ALL).await?;
        let rows = self.database.fetch(query!("known_deliveries").with([tenant.into(), json(&ids)])).await?;
        let known: HashSet<String> = rows.iter().map(|row| row.text("id")).collect();
        Ok(ids.iter().position(|id| !known.contains(id)))
    }

    pub async fn job(&self, tenant: &str, id: &str) -> Result<Option<JobRow>, Error> {
        let rows = self.database.fetch(query!("get_job").with([tenant.into(), id.into()])).await?;
        Ok(rows.first().and_then(job))
    }

    pub async fn jobs(
        &self,
        tenant: &str,
        kind: Option<Kind>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<JobRow>, Error> {
        let kind = kind.map(Kind::as_str);
        let step = query!("list_jobs").with([tenant.into(), kind.into(), after.into(), limit.into()]);
        Ok(self.database.fetch(step).await?.iter().filter_map(job).collect())
    }

    /// Ends it; `None` if it has ended already, or there is none.
    pub async fn cancel_job(&self, tenant: &str, id: &str) -> Result<Option<JobRow>, Error> {
        let step = query!("cancel_job").with([tenant.into(), id.into()]).must_match();
        let rows = self.database.transact([step]).await?;
        Ok(rows.and_then(|[rows]| rows.first().and_then(job)))
    }

    /// Leases the job that has waited longest.
    pub async fn claim_job(&self, lease: &Lease) -> Result<Option<JobRow>, Error> {
        let step = query!("claim_job").with([(&*lease.owner).into(), milliseconds(lease.length).into()]).must_match();
        let rows = self.database.transact([step]).await?;
        Ok(rows.and_then(|[rows]| rows.first().and_then(job)))
    }

    /// Gives it up for good.
    pub async fn fail_job(&self, id: &str, fence: i64, error: &str) -> Result<(), Error> {
        self.database.transact([query!("fail_job").with([id.into(), fence.into(), error.into()])]).await.map(drop)
    }

    /// Could a job of another tenant be worked on now?
    pub async fn do_others_wait(&self, tenant: &str) -> Result<bool, Error> {
        Ok(!self.database.fetch(query!("others_wait").with([tenant.into()])).await?.is_empty())
    }

    /// Gives it back for someone to go on with, after others that have waited longer.
    pub async fn release_job(&self, id: &str, fence: i64) -> Result<(), Error> {
        self.database.transact([query!("release_job").with([id.into(), fence.into()])]).await.map(drop)
    }

    /// The records of jobs that ended longer ago than this go.
    pub async fn forget_jobs(&self, retention: Duration) -> Result<(), Error> {
        self.database.transact([query!("delete_old_jobs").with([milliseconds(retention).into()])]).await.map(drop)
    }
}

fn json(value: &impl serde::Serialize) -> Value {
    Value::Text(serde_json::to_string(value).expect("it is plain data"))
}

/// `None` for one that a newer version made and this one cannot read.
fn job(row: &Row) -> Option<JobRow> {
    Some(JobRow {
        id: row.text("id"),
        tenant: row.text("tenant_id"),
        kind: Kind::parse(&row.text("kind"))?,
        state: State::parse(&row.text("state"))?,
        selection: serde_json::from_str(&row.text("selection")).ok()?,
        progress: serde_json::from_str(&row.text("progress")).ok()?,
        error: row.optional_text("error"),
        fence: row.int("fence"),
        created_at: row.time("created_at"),
        started_at: row.optional_time("started_at"),
        finished_at: row.optional_time("finished_at"),
    })
}
