-- Known ids insert nothing; find_events.sql then tells repeats from conflicts. Arrays that one SELECT unnests go in step; in FROM,
-- each would be stored and read again. "IS TRUE" keeps the look-up a hash: as a join it would be one of every row with every other.
WITH fresh AS (
  INSERT INTO event_keys (tenant_id, id, uid, hash)
  SELECT unnest($1::text[]), unnest($2::text[]), unnest($3::text[]), unnest($4::bytea[])
  ON CONFLICT DO NOTHING
  RETURNING uid
), input AS (
  SELECT unnest($1) AS tenant_id, unnest($2) AS id, unnest($3) AS uid, unnest($5::text[]) AS type, unnest($6::text[]) AS source,
    unnest($7::text[]) AS ordering_key, unnest($8::timestamptz[]) AS deliver_at, unnest($9::text[]) AS data, unnest($10::timestamptz[]) AS created_at,
    unnest($11::text[]) AS trace
)
INSERT INTO events (uid, tenant_id, id, type, source, ordering_key, deliver_at, data, created_at, trace)
SELECT uid, tenant_id, id, type, source, ordering_key, deliver_at, data, coalesce(created_at, now()), trace FROM input
WHERE (uid IN (SELECT uid FROM fresh)) IS TRUE
RETURNING uid, created_at
