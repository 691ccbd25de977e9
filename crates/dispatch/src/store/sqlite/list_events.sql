SELECT e.uid, e.id, e.type, e.source, e.ordering_key, e.deliver_at, e.data, e.created_at FROM events e
WHERE e.tenant_id = ?1 AND (?2 IS NULL OR e.type = ?2) AND (?3 IS NULL OR e.uid < (SELECT uid FROM events WHERE tenant_id = ?1 AND id = ?3))
ORDER BY e.uid DESC
LIMIT ?4
