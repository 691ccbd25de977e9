-- What operators do to many deliveries at once, in the background. As with a delivery, `due_at` is when a worker may take
-- it: at once, or at the end of the present lease; NULL once it has ended.
CREATE TABLE jobs (
  id          TEXT PRIMARY KEY,
  tenant_id   TEXT NOT NULL,
  kind        TEXT NOT NULL,
  state       TEXT NOT NULL DEFAULT 'pending',
  selection   TEXT NOT NULL,                 -- JSON: which deliveries
  progress    TEXT NOT NULL,                 -- JSON: the place it has come to, and what it has done so far
  error       TEXT,
  fence       INTEGER NOT NULL DEFAULT 0,
  lease_owner TEXT,
  due_at      INTEGER,
  created_at  INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
  started_at  INTEGER,
  finished_at INTEGER
) STRICT;

CREATE INDEX jobs_of_tenant ON jobs (tenant_id, id);
CREATE INDEX jobs_due ON jobs (tenant_id, id) WHERE due_at IS NOT NULL;

-- Attempts made before the present schedule began: a replayed delivery starts afresh, its attempts count on.
ALTER TABLE deliveries ADD COLUMN attempts_before INTEGER NOT NULL DEFAULT 0;

CREATE INDEX deliveries_of_tenant ON deliveries (tenant_id, id);
-- What went well at once never enters it, so it costs the usual delivery nothing.
CREATE INDEX deliveries_by_status ON deliveries (tenant_id, status, id)
  WHERE status IN ('retrying', 'throttled', 'failed', 'cancelled');
CREATE INDEX events_by_type ON events (tenant_id, type, uid);
