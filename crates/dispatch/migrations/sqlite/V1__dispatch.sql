-- Times are milliseconds since 1970, by SQLite's clock.
CREATE TABLE subscriptions (
  tenant_id       TEXT NOT NULL,
  id              TEXT NOT NULL,
  settings        TEXT NOT NULL,             -- JSON: url, event_types, filter, headers, limits, schedule
  enabled         INTEGER NOT NULL DEFAULT 1,
  disabled_reason TEXT,
  failing_since   INTEGER,                   -- set by the first failure after a success
  version         INTEGER NOT NULL,          -- of subscription_version, when this row last changed
  deleted_at      INTEGER,                   -- kept, so that its deliveries stay readable
  created_at      INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
  updated_at      INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
  PRIMARY KEY (tenant_id, id)
) STRICT;

-- Sealed for their tenant and subscription. A rotated secret still signs until it expires.
CREATE TABLE subscription_secrets (
  tenant_id       TEXT NOT NULL,
  subscription_id TEXT NOT NULL,
  id              TEXT NOT NULL,
  sealed          BLOB NOT NULL,
  created_at      INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
  expires_at      INTEGER,
  PRIMARY KEY (tenant_id, subscription_id, id),
  FOREIGN KEY (tenant_id, subscription_id) REFERENCES subscriptions (tenant_id, id) ON DELETE CASCADE
) STRICT;

-- One row: grows with every change to a subscription, so that replicas know when to read them again.
CREATE TABLE subscription_version (version INTEGER NOT NULL) STRICT;
INSERT INTO subscription_version VALUES (0);

-- `uid` is ours and sorts by time; `id` is what the caller knows the event by.
CREATE TABLE events (
  uid          TEXT PRIMARY KEY,
  tenant_id    TEXT NOT NULL,
  id           TEXT NOT NULL,
  type         TEXT NOT NULL,
  source       TEXT,
  ordering_key TEXT,
  deliver_at   INTEGER,
  data         TEXT NOT NULL,
  hash         BLOB NOT NULL,                -- of everything the caller sent, to tell a repeat from a conflict
  created_at   INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
  UNIQUE (tenant_id, id)
) STRICT;

CREATE INDEX events_of_tenant ON events (tenant_id, uid);

-- `due_at` is when someone may take it: the next attempt, or the end of the present lease; NULL once it has ended.
CREATE TABLE deliveries (
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
  updated_at      INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER))
) STRICT;

CREATE INDEX deliveries_due ON deliveries (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_ordered ON deliveries (subscription_id, ordering_key, id)
  WHERE due_at IS NOT NULL AND ordering_key IS NOT NULL;
CREATE INDEX deliveries_of_event ON deliveries (event_uid);
CREATE INDEX deliveries_of_subscription ON deliveries (tenant_id, subscription_id, id);

CREATE TABLE attempts (
  id               TEXT PRIMARY KEY,
  tenant_id        TEXT NOT NULL,
  delivery_id      TEXT NOT NULL,
  number           INTEGER NOT NULL,
  started_at       INTEGER NOT NULL,
  duration_ms      INTEGER NOT NULL,
  response_status  INTEGER,
  response_headers TEXT,
  response_body    BLOB,
  error_class      TEXT,
  error            TEXT
) STRICT;

CREATE INDEX attempts_of_delivery ON attempts (delivery_id, number);
