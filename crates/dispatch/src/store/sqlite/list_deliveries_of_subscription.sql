-- Newest first, along what is filed under the subscription.
SELECT d.id, d.event_uid, e.id AS event_id, e.type AS event_type, d.subscription_id, d.status, d.attempts, d.deferrals, d.due_at, d.last_error, d.created_at, d.updated_at
FROM filed_deliveries f CROSS JOIN deliveries d ON d.id = f.id LEFT JOIN events e ON e.uid = d.event_uid
WHERE f.tenant_id = ?1 AND f.subscription_id = ?3
  AND f.id >= ?8 AND f.id < ?9
  AND (?2 IS NULL OR d.status = ?2)
  AND (?4 IS NULL OR d.event_uid = ?4)
  AND (?5 IS NULL OR e.type = ?5)
  AND (?6 IS NULL OR d.created_at >= ?6)
  AND (?7 IS NULL OR d.created_at < ?7)
ORDER BY f.id DESC
LIMIT ?10
