-- Known ids insert nothing; find_events.sql then tells repeats from conflicts. "IS TRUE" keeps the look-up a hash: as a join
-- it would be one of every row with every other.
WITH input AS (
  SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::text[], $7::text[], $8::timestamptz[], $9::text[], $10::timestamptz[])
    AS input (tenant_id, id, uid, hash, type, source, ordering_key, deliver_at, data, created_at)
), fresh AS (
  INSERT INTO event_keys (tenant_id, id, uid, hash)
  SELECT tenant_id, id, uid, hash FROM input
  ON CONFLICT DO NOTHING
  RETURNING uid
)
INSERT INTO events (uid, tenant_id, id, type, source, ordering_key, deliver_at, data, created_at)
SELECT uid, tenant_id, id, type, source, ordering_key, deliver_at, data, coalesce(created_at, now()) FROM input
WHERE (uid IN (SELECT uid FROM fresh)) IS TRUE
RETURNING uid, created_at
