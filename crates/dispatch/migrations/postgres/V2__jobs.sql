-- What operators do to many deliveries at once, in the background. As with a delivery, `due_at` is when a worker may take
-- it: at once, or at the end of the present lease; NULL once it has ended.
CREATE TABLE jobs (
  id          text COLLATE "C" PRIMARY KEY,
  tenant_id   text NOT NULL,
  kind        text NOT NULL,
  state       text NOT NULL DEFAULT 'pending',
  selection   text NOT NULL,                 -- JSON: which deliveries
  progress    text NOT NULL,                 -- JSON: the place it has come to, and what it has done so far
  error       text,
  fence       bigint NOT NULL DEFAULT 0,
  lease_owner text,
  due_at      timestamptz,
  created_at  timestamptz NOT NULL DEFAULT now(),
  started_at  timestamptz,
  finished_at timestamptz
);

CREATE INDEX jobs_of_tenant ON jobs (tenant_id, id);
CREATE INDEX jobs_due ON jobs (tenant_id, id) WHERE due_at IS NOT NULL;

-- Attempts made before the present schedule began: a replayed delivery starts afresh, its attempts count on.
ALTER TABLE deliveries ADD COLUMN attempts_before integer NOT NULL DEFAULT 0;

CREATE INDEX deliveries_of_tenant ON deliveries (tenant_id, id);
-- What went well at once never enters it, so it costs the usual delivery nothing.
CREATE INDEX deliveries_by_status ON deliveries (tenant_id, status, id)
  WHERE status IN ('retrying', 'throttled', 'failed', 'cancelled');
CREATE INDEX events_by_type ON events (tenant_id, type, uid);
