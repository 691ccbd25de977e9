-- Deliveries that may be made at once have no rows of their own yet: a commit that makes some puts them into a few flights, and
-- each gets its row with its first outcome, or as soon as somebody looks for it (store/flights.rs). There are never many, and
-- none stays: its rows are dead a second later.
CREATE TABLE flights (
  id            text COLLATE "C" PRIMARY KEY,
  owner         text,                        -- NULL: whoever claims it
  until         timestamptz,                 -- the end of the owner's lease
  size          integer NOT NULL,
  deliveries    text[] NOT NULL,
  tenants       text[] NOT NULL,
  events        text[] NOT NULL,             -- their uids
  subscriptions text[] NOT NULL,
  created_at    timestamptz NOT NULL DEFAULT now()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- Compressing them would cost more than writing them.
ALTER TABLE flights ALTER COLUMN deliveries SET STORAGE EXTERNAL, ALTER COLUMN tenants SET STORAGE EXTERNAL,
  ALTER COLUMN events SET STORAGE EXTERNAL, ALTER COLUMN subscriptions SET STORAGE EXTERNAL;
CREATE INDEX flights_leased ON flights (until) WHERE until IS NOT NULL;
