-- Newest first, along the index of statuses that few deliveries are in. The list is the index's own.
SELECT d.id, d.event_uid, e.id AS event_id, e.type AS event_type, d.subscription_id, d.status, d.attempts, d.deferrals, d.due_at, d.last_error, d.created_at, d.updated_at
FROM deliveries d INDEXED BY deliveries_by_status LEFT JOIN events e ON e.uid = d.event_uid
WHERE d.tenant_id = ?1 AND d.status = ?2 AND (d.status = 'retrying' OR d.status = 'throttled' OR d.status = 'failed' OR d.status = 'cancelled')
  AND d.id >= ?8 AND d.id < ?9
  AND (?3 IS NULL OR d.subscription_id = ?3)
  AND (?4 IS NULL OR d.event_uid = ?4)
  AND (?5 IS NULL OR e.type = ?5)
  AND (?6 IS NULL OR d.created_at >= ?6)
  AND (?7 IS NULL OR d.created_at < ?7)
ORDER BY d.id DESC
LIMIT ?10
