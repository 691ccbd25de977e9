-- Of an event that is still there, and not before its time.
INSERT INTO deliveries (id, tenant_id, event_uid, subscription_id, ordering_key, status, due_at)
SELECT ?1, e.tenant_id, e.uid, ?3, ?4, 'pending', max(CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?5, coalesce(e.deliver_at, 0)) FROM events e WHERE e.uid = ?2
