-- Of an event that is still there.
INSERT INTO deliveries (id, tenant_id, event_uid, subscription_id, ordering_key, status, due_at)
SELECT ?1, e.tenant_id, e.uid, ?3, ?4, 'pending', CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?5 FROM events e WHERE e.uid = ?2
