CREATE TABLE gates (
  tenant_id  TEXT NOT NULL,
  target     TEXT NOT NULL COLLATE "C",
  policy     TEXT,                       -- JSON; NULL: the default policy, or what callers bring
  version    BIGINT NOT NULL DEFAULT 0,  -- of gate_version, when the policy last changed
  created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
  used_at    TIMESTAMPTZ NOT NULL DEFAULT now(), -- to the hour
  PRIMARY KEY (tenant_id, target)
);

CREATE INDEX gates_changed ON gates (version) WHERE version > 0;

-- One row: grows with every change to a policy, so that replicas know when to read them again.
CREATE TABLE gate_version (version BIGINT NOT NULL);
INSERT INTO gate_version VALUES (0);
