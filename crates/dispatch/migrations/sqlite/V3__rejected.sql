-- Records of a topic that could not become events, with their bytes. Only PostgreSQL stands beside Kafka, so here it
-- stays empty; one schema keeps the API the same.
CREATE TABLE rejected_records (
  id           TEXT PRIMARY KEY,
  tenant_id    TEXT,                         -- as far as it could be told
  topic        TEXT NOT NULL,
  partition_no INTEGER NOT NULL,
  offset_no    INTEGER NOT NULL,
  record_at    INTEGER NOT NULL,             -- when Kafka took it
  key          BLOB,
  value        BLOB NOT NULL,
  headers      TEXT NOT NULL,                -- JSON
  reason       TEXT NOT NULL,                -- a bounded word
  detail       TEXT NOT NULL,                -- one sentence
  created_at   INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
  UNIQUE (topic, partition_no, offset_no, record_at)
) STRICT;
CREATE INDEX rejected_records_of_tenant ON rejected_records (tenant_id, id);
