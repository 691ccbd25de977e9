-- Fewer trees to keep: rows of deliveries and attempts lie in their own key's tree, and nobody looks an attempt up by its id.
CREATE TABLE lean_deliveries (
  id              TEXT PRIMARY KEY,
  tenant_id       TEXT NOT NULL,
  event_uid       TEXT NOT NULL,
  subscription_id TEXT NOT NULL,
  ordering_key    TEXT,                      -- only where the subscription asks for order
  status          TEXT NOT NULL,
  attempts        INTEGER NOT NULL DEFAULT 0,
  deferrals       INTEGER NOT NULL DEFAULT 0,
  is_manual       INTEGER NOT NULL DEFAULT 0,
  fence           INTEGER NOT NULL DEFAULT 0,
  lease_owner     TEXT,
  due_at          INTEGER,
  last_error      TEXT,
  created_at      INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
  updated_at      INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
  attempts_before INTEGER NOT NULL DEFAULT 0 -- the present schedule began
) STRICT, WITHOUT ROWID;

INSERT INTO lean_deliveries SELECT * FROM deliveries;
DROP TABLE deliveries;
ALTER TABLE lean_deliveries RENAME TO deliveries;

CREATE INDEX deliveries_due ON deliveries (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_ordered ON deliveries (subscription_id, ordering_key, id)
  WHERE due_at IS NOT NULL AND ordering_key IS NOT NULL;
CREATE INDEX deliveries_of_event ON deliveries (event_uid);
CREATE INDEX deliveries_of_subscription ON deliveries (tenant_id, subscription_id, id);
CREATE INDEX deliveries_of_tenant ON deliveries (tenant_id, id);
CREATE INDEX deliveries_by_status ON deliveries (tenant_id, status, id)
  WHERE status IN ('retrying', 'throttled', 'failed', 'cancelled');

CREATE TABLE lean_attempts (
  id               TEXT NOT NULL,
  tenant_id        TEXT NOT NULL,
  delivery_id      TEXT NOT NULL,
  number           INTEGER NOT NULL,
  started_at       INTEGER NOT NULL,
  duration_ms      INTEGER NOT NULL,
  response_status  INTEGER,
  response_headers TEXT,
  response_body    BLOB,
  error_class      TEXT,
  error            TEXT,
  PRIMARY KEY (delivery_id, number)
) STRICT, WITHOUT ROWID;

INSERT INTO lean_attempts SELECT * FROM attempts;
DROP TABLE attempts;
ALTER TABLE lean_attempts RENAME TO attempts;
