-- $1 says which: 'all', 'free', 'expired', 'lost' (leased for longer than any lease), or those of an owner. Of those that were made
-- until $2, the first ten. What has a row already keeps it. In the order of ids, as record_first.sql has it: two that write the
-- same rows must not wait for each other.
WITH landing AS (
  DELETE FROM flights WHERE id IN (
    SELECT id FROM flights
    WHERE created_at <= $2 AND CASE $1::text WHEN 'all' THEN TRUE WHEN 'free' THEN owner IS NULL WHEN 'expired' THEN until <= now()
      WHEN 'lost' THEN owner IS NOT NULL AND coalesce(until > now() + interval '25 hours', TRUE) ELSE owner = $1 END
    ORDER BY id LIMIT 10 FOR UPDATE)
  RETURNING owner, until, created_at, deliveries, tenants, events, subscriptions
), landed AS (
  INSERT INTO deliveries (id, tenant_id, event_uid, subscription_id, line, status, fence, lease_owner, due_at, created_at, updated_at)
  SELECT d.id, d.tenant_id, d.event_uid, d.subscription_id, NULL::bigint,
    CASE WHEN f.owner IS NULL THEN 'pending' ELSE 'processing' END, (f.owner IS NOT NULL)::integer,
    f.owner, coalesce(f.until, f.created_at), f.created_at, f.created_at
  FROM landing f, unnest(f.deliveries, f.tenants, f.events, f.subscriptions) AS d (id, tenant_id, event_uid, subscription_id)
  ORDER BY d.id COLLATE "C"
  ON CONFLICT (id) DO NOTHING
)
SELECT count(*) FROM landing
