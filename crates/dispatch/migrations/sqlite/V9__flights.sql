-- Deliveries that may be made at once have no rows of their own yet: a commit that makes some puts them into a few flights, and
-- each gets its row with its first outcome, or as soon as somebody looks for it (store/flights.rs).
CREATE TABLE flights (
  id         TEXT PRIMARY KEY,
  owner      TEXT,                           -- NULL: whoever claims it
  until      INTEGER,                        -- the end of the owner's lease
  size       INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  deliveries TEXT NOT NULL                   -- JSON: id, tenant, event's uid and subscription of each
) STRICT, WITHOUT ROWID;
CREATE INDEX flights_leased ON flights (until) WHERE until IS NOT NULL;
