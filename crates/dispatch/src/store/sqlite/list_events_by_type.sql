SELECT e.uid, e.id, e.type, e.source, e.ordering_key, e.deliver_at, e.data, e.created_at
FROM filed_events f CROSS JOIN events e ON e.uid = f.uid
WHERE f.tenant_id = ?1 AND f.type = ?2
  AND f.uid >= ?5 AND f.uid < ?6
  AND (?3 IS NULL OR e.created_at >= ?3)
  AND (?4 IS NULL OR e.created_at < ?4)
ORDER BY f.uid DESC
LIMIT ?7
