-- The conditions are those of purge_event.sql, which follows.
DELETE FROM filed_events
WHERE (tenant_id, type, uid) IN (SELECT tenant_id, type, uid FROM events WHERE uid = ?1) AND NOT EXISTS (SELECT 1 FROM deliveries WHERE event_uid = ?1)
