//! Which server answers. After a failover another one does, and it may lack the last commits of the one before.

use platform::{db::Error, query};
use time::OffsetDateTime;

use super::Store;

impl Store {
    /// When the PostgreSQL that answers was started: no two servers were in the same microsecond. `None` in SQLite.
    pub async fn server_began(&self) -> Result<Option<OffsetDateTime>, Error> {
        let rows = self.database.fetch(query!("server_began").with([])).await?;
        Ok(rows.first().and_then(|row| row.optional_time("began")))
    }
}
