-- Times are milliseconds since 1970, by SQLite's clock.
CREATE TABLE gates (
  tenant_id  TEXT NOT NULL,
  target     TEXT NOT NULL,
  policy     TEXT,                       -- JSON; NULL: the default policy, or what callers bring
  version    INTEGER NOT NULL DEFAULT 0, -- of gate_version, when the policy last changed
  created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
  used_at    INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)), -- to the hour
  PRIMARY KEY (tenant_id, target)
) STRICT;

CREATE INDEX gates_changed ON gates (version) WHERE version > 0;

-- One row: grows with every change to a policy, so that replicas know when to read them again.
CREATE TABLE gate_version (version INTEGER NOT NULL) STRICT;
INSERT INTO gate_version VALUES (0);
