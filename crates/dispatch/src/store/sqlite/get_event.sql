SELECT e.uid, e.id, e.type, e.source, e.ordering_key, e.deliver_at, e.data, e.created_at FROM events e WHERE e.tenant_id = ?1 AND e.id = ?2
