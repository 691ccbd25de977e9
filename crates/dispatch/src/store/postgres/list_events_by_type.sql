SELECT e.uid, e.id, e.type, e.source, e.ordering_key, e.deliver_at, e.data, e.created_at FROM events e
WHERE e.tenant_id = $1 AND e.type = $2
  AND (e.tenant_id, e.type, e.uid) >= ($1, $2, $5) AND (e.tenant_id, e.type, e.uid) < ($1, $2, $6)
  AND ($3::timestamptz IS NULL OR e.created_at >= $3)
  AND ($4::timestamptz IS NULL OR e.created_at < $4)
ORDER BY e.uid DESC
LIMIT $7
