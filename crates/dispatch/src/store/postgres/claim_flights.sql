-- The oldest that nobody has, as far as all of their deliveries fit into $3. Those that another claimer holds are stepped over.
WITH free AS (
  SELECT id, size FROM flights WHERE owner IS NULL ORDER BY id LIMIT 10 FOR UPDATE SKIP LOCKED
), fitting AS (
  SELECT id FROM (SELECT id, sum(size) OVER (ORDER BY id) AS total FROM free) summed WHERE total <= $3::bigint
), claimed AS (
  UPDATE flights SET owner = $1, until = now() + $2::bigint * interval '1 millisecond'
  WHERE id IN (SELECT id FROM fitting)
  RETURNING id, created_at, deliveries, tenants, events, subscriptions
)
SELECT c.id AS flight, (extract(epoch FROM now() - c.created_at) * 1000)::bigint AS age_ms, d.id, d.tenant_id, d.event_uid, d.subscription_id,
  e.id AS event_id, e.type, e.created_at, e.data, e.trace, coalesce(e.source = 'tidegate', FALSE) AS is_operational
FROM claimed c, unnest(c.deliveries, c.tenants, c.events, c.subscriptions) AS d (id, tenant_id, event_uid, subscription_id)
JOIN events e ON e.uid = d.event_uid
