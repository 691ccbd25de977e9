-- Newest first; an event has few. The tenant is compared in a way no index serves: in a partition that is new, its own would
-- seem as good, past all that the tenant has.
SELECT d.id, d.event_uid, e.id AS event_id, e.type AS event_type, d.subscription_id, d.status, d.attempts, d.deferrals, d.due_at, d.last_error, d.created_at, d.updated_at
FROM deliveries d LEFT JOIN events e ON e.uid = d.event_uid
WHERE d.event_uid = $4 AND d.tenant_id IS NOT DISTINCT FROM $1
  AND (d.event_uid, d.id) >= ($4, $8) AND (d.event_uid, d.id) < ($4, $9)
  AND ($2::text IS NULL OR d.status = $2)
  AND ($3::text IS NULL OR d.subscription_id = $3)
  AND ($5::text IS NULL OR e.type = $5)
  AND ($6::timestamptz IS NULL OR d.created_at >= $6)
  AND ($7::timestamptz IS NULL OR d.created_at < $7)
ORDER BY d.id DESC
LIMIT $10
