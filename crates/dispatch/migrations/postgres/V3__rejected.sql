-- Records of the topic that could not become events, with their bytes. Reading one again finds it here: a topic that was
-- made anew counts its offsets from zero, so its time is part of what it is known by.
CREATE TABLE rejected_records (
  id           text COLLATE "C" PRIMARY KEY,
  tenant_id    text,                         -- as far as it could be told
  topic        text NOT NULL,
  partition_no integer NOT NULL,
  offset_no    bigint NOT NULL,
  record_at    timestamptz NOT NULL,         -- when Kafka took it
  key          bytea,
  value        bytea NOT NULL,
  headers      text NOT NULL,                -- JSON
  reason       text NOT NULL,                -- a bounded word
  detail       text NOT NULL,                -- one sentence
  created_at   timestamptz NOT NULL DEFAULT now(),
  UNIQUE (topic, partition_no, offset_no, record_at)
);
CREATE INDEX rejected_records_of_tenant ON rejected_records (tenant_id, id);
