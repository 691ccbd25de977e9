-- Times are PostgreSQL's own.
CREATE TABLE tenants (
  id         text PRIMARY KEY,
  name       text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);

INSERT INTO tenants (id, name) VALUES ('default', 'Default');

-- `hash` is the SHA-256 of the key; the key itself is nowhere.
CREATE TABLE api_keys (
  tenant_id    text NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
  id           text NOT NULL,
  name         text NOT NULL,
  hash         bytea NOT NULL UNIQUE,
  hint         text NOT NULL,
  scopes       text NOT NULL,
  created_at   timestamptz NOT NULL DEFAULT now(),
  expires_at   timestamptz,
  revoked_at   timestamptz,
  last_used_at timestamptz,
  replaced_by  text,
  PRIMARY KEY (tenant_id, id)
);

-- Which master keys this database has seen: a wrong one is noticed at start, not at the first send.
CREATE TABLE master_keys (
  id         text PRIMARY KEY,
  created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE audit (
  id        text PRIMARY KEY,
  at        timestamptz NOT NULL DEFAULT now(),
  tenant_id text NOT NULL,
  actor     text NOT NULL,
  action    text NOT NULL,
  target    text NOT NULL
);

CREATE INDEX audit_by_tenant ON audit (tenant_id, id);
