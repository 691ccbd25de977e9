-- Newest first, along the index of statuses that few deliveries are in. The list is the index's own.
SELECT d.id, d.event_uid, e.id AS event_id, e.type AS event_type, d.subscription_id, d.status, d.attempts, d.deferrals, d.due_at, d.last_error, d.created_at, d.updated_at
FROM deliveries d LEFT JOIN events e ON e.uid = d.event_uid
WHERE d.tenant_id = $1 AND d.status = $2 AND d.status IN ('retrying', 'throttled', 'failed', 'cancelled')
  AND (d.tenant_id, d.status, d.id) >= ($1, $2, $8) AND (d.tenant_id, d.status, d.id) < ($1, $2, $9)
  AND ($3::text IS NULL OR d.subscription_id = $3)
  AND ($4::text IS NULL OR d.event_uid = $4)
  AND ($5::text IS NULL OR e.type = $5)
  AND ($6::timestamptz IS NULL OR d.created_at >= $6)
  AND ($7::timestamptz IS NULL OR d.created_at < $7)
ORDER BY d.id DESC
LIMIT $10
