-- Times are PostgreSQL's own. Ids sort by time, so the big tables are partitioned by ranges of ids: one partition a day,
-- made ahead and dropped by retention (store/partition.rs), and found from an id alone.
CREATE TABLE subscriptions (
  tenant_id       text NOT NULL,
  id              text NOT NULL,
  settings        text NOT NULL,             -- JSON: url, event_types, filter, headers, limits, schedule
  enabled         boolean NOT NULL DEFAULT TRUE,
  disabled_reason text,
  failing_since   timestamptz,               -- set by the first failure after a success
  version         bigint NOT NULL,           -- of subscription_version, when this row last changed
  deleted_at      timestamptz,               -- kept, so that its deliveries stay readable
  created_at      timestamptz NOT NULL DEFAULT now(),
  updated_at      timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant_id, id)
);

-- Sealed for their tenant and subscription. A rotated secret still signs until it expires.
CREATE TABLE subscription_secrets (
  tenant_id       text NOT NULL,
  subscription_id text NOT NULL,
  id              text NOT NULL,
  sealed          bytea NOT NULL,
  created_at      timestamptz NOT NULL DEFAULT now(),
  expires_at      timestamptz,
  PRIMARY KEY (tenant_id, subscription_id, id),
  FOREIGN KEY (tenant_id, subscription_id) REFERENCES subscriptions (tenant_id, id) ON DELETE CASCADE
);

-- One row: grows with every change to a subscription, so that replicas know when to read them again.
CREATE TABLE subscription_version (version bigint NOT NULL);
INSERT INTO subscription_version VALUES (0);

-- What the caller knows an event by, and the hash that tells a repeat from a conflict.
CREATE TABLE event_keys (
  tenant_id text NOT NULL,
  id        text NOT NULL,
  uid       text COLLATE "C" NOT NULL,
  hash      bytea NOT NULL,
  PRIMARY KEY (tenant_id, id)
);
CREATE INDEX event_keys_by_age ON event_keys (uid);

CREATE TABLE events (
  uid          text COLLATE "C" PRIMARY KEY,
  tenant_id    text NOT NULL,
  id           text NOT NULL,
  type         text NOT NULL,
  source       text,
  ordering_key text,
  deliver_at   timestamptz,
  data         text NOT NULL,
  created_at   timestamptz NOT NULL DEFAULT now()
) PARTITION BY RANGE (uid);

CREATE INDEX events_of_tenant ON events (tenant_id, uid);

-- `due_at` is when someone may take it: the next attempt, or the end of the present lease; NULL once it has ended.
CREATE TABLE deliveries (
  id              text COLLATE "C" PRIMARY KEY,
  tenant_id       text NOT NULL,
  event_uid       text COLLATE "C" NOT NULL,
  subscription_id text NOT NULL,
  ordering_key    text,                      -- only where the subscription asks for order
  status          text NOT NULL,
  attempts        integer NOT NULL DEFAULT 0,
  deferrals       integer NOT NULL DEFAULT 0,
  is_manual       boolean NOT NULL DEFAULT FALSE,
  fence           bigint NOT NULL DEFAULT 0,
  lease_owner     text,
  due_at          timestamptz,
  last_error      text,
  created_at      timestamptz NOT NULL DEFAULT now(),
  updated_at      timestamptz NOT NULL DEFAULT now()
) PARTITION BY RANGE (id);

CREATE INDEX deliveries_due ON deliveries (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_ordered ON deliveries (subscription_id, ordering_key, id)
  WHERE due_at IS NOT NULL AND ordering_key IS NOT NULL;
CREATE INDEX deliveries_of_event ON deliveries (event_uid);
CREATE INDEX deliveries_of_subscription ON deliveries (tenant_id, subscription_id, id);

CREATE TABLE attempts (
  id               text COLLATE "C" PRIMARY KEY,
  tenant_id        text NOT NULL,
  delivery_id      text COLLATE "C" NOT NULL,
  number           integer NOT NULL,
  started_at       timestamptz NOT NULL,
  duration_ms      bigint NOT NULL,
  response_status  integer,
  response_headers text,
  response_body    bytea,
  error_class      text,
  error            text
) PARTITION BY RANGE (id);

CREATE INDEX attempts_of_delivery ON attempts (delivery_id, number);
