SELECT e.uid, e.id, e.type, e.source, e.ordering_key, e.deliver_at, e.data, e.created_at FROM events e
WHERE e.tenant_id = $1 AND ($2::text IS NULL OR e.type = $2)
  AND ($3::text IS NULL OR e.uid < (SELECT uid FROM event_keys WHERE tenant_id = $1 AND id = $3))
ORDER BY e.uid DESC
LIMIT $4
