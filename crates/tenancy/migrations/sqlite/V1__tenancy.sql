-- Times are milliseconds since 1970, by SQLite's clock.
CREATE TABLE tenants (
  id         TEXT PRIMARY KEY,
  name       TEXT NOT NULL,
  created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER))
) STRICT;

INSERT INTO tenants (id, name) VALUES ('default', 'Default');

-- `hash` is the SHA-256 of the key; the key itself is nowhere.
CREATE TABLE api_keys (
  tenant_id    TEXT NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
  id           TEXT NOT NULL,
  name         TEXT NOT NULL,
  hash         BLOB NOT NULL UNIQUE,
  hint         TEXT NOT NULL,
  scopes       TEXT NOT NULL,
  created_at   INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
  expires_at   INTEGER,
  revoked_at   INTEGER,
  last_used_at INTEGER,
  replaced_by  TEXT,
  PRIMARY KEY (tenant_id, id)
) STRICT;

-- Which master keys this database has seen: a wrong one is noticed at start, not at the first send.
CREATE TABLE master_keys (
  id         TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER))
) STRICT;

CREATE TABLE audit (
  id        TEXT PRIMARY KEY,
  at        INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
  tenant_id TEXT NOT NULL,
  actor     TEXT NOT NULL,
  action    TEXT NOT NULL,
  target    TEXT NOT NULL
) STRICT;

CREATE INDEX audit_by_tenant ON audit (tenant_id, id);
