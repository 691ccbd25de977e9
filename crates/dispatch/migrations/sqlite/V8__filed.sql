-- SQLite builds a table for every list of more than two words, each time it asks whether a row belongs into such an index: half
-- of what writing a delivery cost. Words that are compared one by one cost next to nothing.
DROP INDEX deliveries_by_status;
CREATE INDEX deliveries_by_status ON deliveries (tenant_id, status, id)
  WHERE status = 'retrying' OR status = 'throttled' OR status = 'failed' OR status = 'cancelled';
DROP INDEX deliveries_lost;
CREATE INDEX deliveries_lost ON deliveries (id)
  WHERE due_at IS NULL AND status <> 'delivered' AND status <> 'failed' AND status <> 'cancelled';

-- Two trees are written at random places, and each place is a page for the log in every commit. They are tables now, and filled
-- in bulk (store/filing.rs) from the ids in `unfiled`: JSON arrays, a row for each commit that made any.
CREATE TABLE filed_deliveries (
  tenant_id       TEXT NOT NULL,
  subscription_id TEXT NOT NULL,
  id              TEXT NOT NULL,
  PRIMARY KEY (tenant_id, subscription_id, id)
) STRICT, WITHOUT ROWID;
INSERT INTO filed_deliveries SELECT tenant_id, subscription_id, id FROM deliveries ORDER BY tenant_id, subscription_id, id;
DROP INDEX deliveries_of_subscription;

CREATE TABLE filed_events (
  tenant_id TEXT NOT NULL,
  type      TEXT NOT NULL,
  uid       TEXT NOT NULL,
  PRIMARY KEY (tenant_id, type, uid)
) STRICT, WITHOUT ROWID;
INSERT INTO filed_events SELECT tenant_id, type, uid FROM events ORDER BY tenant_id, type, uid;
DROP INDEX events_by_type;

CREATE TABLE unfiled (
  events     TEXT NOT NULL,
  deliveries TEXT NOT NULL
) STRICT;
