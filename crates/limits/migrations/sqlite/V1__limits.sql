-- Rules from the API, each of one tenant. Times are milliseconds since 1970.
CREATE TABLE limit_rules (
  tenant_id  TEXT NOT NULL,
  id         TEXT NOT NULL,
  rule       TEXT NOT NULL,                  -- JSON, as it was written
  version    INTEGER NOT NULL,               -- of limit_rule_version, when this row last changed; also its ETag
  deleted_at INTEGER,                        -- kept, so that replicas learn of it
  created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
  updated_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
  PRIMARY KEY (tenant_id, id)
) STRICT;

CREATE INDEX limit_rules_by_version ON limit_rules (version);

-- One row: grows with every change to a rule, so that replicas know when to read them again.
CREATE TABLE limit_rule_version (version INTEGER NOT NULL) STRICT;
INSERT INTO limit_rule_version VALUES (0);
