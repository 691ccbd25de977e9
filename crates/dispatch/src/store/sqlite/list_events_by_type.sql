SELECT e.uid, e.id, e.type, e.source, e.ordering_key, e.deliver_at, e.data, e.created_at FROM events e INDEXED BY events_by_type
WHERE e.tenant_id = ?1 AND e.type = ?2
  AND e.uid >= ?5 AND e.uid < ?6
  AND (?3 IS NULL OR e.created_at >= ?3)
  AND (?4 IS NULL OR e.created_at < ?4)
ORDER BY e.uid DESC
LIMIT ?7
