-- Rules from the API, each of one tenant. Times are PostgreSQL's own.
CREATE TABLE limit_rules (
  tenant_id  text NOT NULL,
  id         text COLLATE "C" NOT NULL,
  rule       text NOT NULL,                  -- JSON, as it was written
  version    bigint NOT NULL,                -- of limit_rule_version, when this row last changed; also its ETag
  deleted_at timestamptz,                    -- kept, so that replicas learn of it
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant_id, id)
);

CREATE INDEX limit_rules_by_version ON limit_rules (version);

-- One row: grows with every change to a rule, so that replicas know when to read them again.
CREATE TABLE limit_rule_version (version bigint NOT NULL);
INSERT INTO limit_rule_version VALUES (0);
