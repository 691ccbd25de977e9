-- Newest first, of those that are due some time: fewer than all that ever were, also of one tenant (whose index would seem as
-- good in a partition that is new).
WITH d AS MATERIALIZED (SELECT * FROM deliveries WHERE due_at IS NOT NULL AND tenant_id IS NOT DISTINCT FROM $1)
SELECT d.id, d.event_uid, e.id AS event_id, e.type AS event_type, d.subscription_id, d.status, d.attempts, d.deferrals, d.due_at, d.last_error, d.created_at, d.updated_at
FROM d LEFT JOIN events e ON e.uid = d.event_uid
WHERE TRUE
  AND d.id >= $8 AND d.id < $9
  AND ($2::text IS NULL OR d.status = $2)
  AND ($3::text IS NULL OR d.subscription_id = $3)
  AND ($4::text IS NULL OR d.event_uid = $4)
  AND ($5::text IS NULL OR e.type = $5)
  AND ($6::timestamptz IS NULL OR d.created_at >= $6)
  AND ($7::timestamptz IS NULL OR d.created_at < $7)
ORDER BY d.id DESC
LIMIT $10
