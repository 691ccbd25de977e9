-- The newest event first, along what is filed under the type; behind the delivery ?11 of the event ?12.
SELECT d.id, d.event_uid, e.id AS event_id, e.type AS event_type, d.subscription_id, d.status, d.attempts, d.deferrals, d.due_at, d.last_error, d.created_at, d.updated_at
FROM filed_events f CROSS JOIN events e ON e.uid = f.uid JOIN deliveries d ON d.event_uid = e.uid
WHERE f.tenant_id = ?1 AND f.type = ?5 AND f.uid >= ?8 AND f.uid < ?9 AND (f.uid < ?12 OR d.id < ?11)
  AND (?2 IS NULL OR d.status = ?2)
  AND (?3 IS NULL OR d.subscription_id = ?3)
  AND (?4 IS NULL OR d.event_uid = ?4)
  AND (?6 IS NULL OR d.created_at >= ?6)
  AND (?7 IS NULL OR d.created_at < ?7)
ORDER BY f.uid DESC, d.id DESC
LIMIT ?10
