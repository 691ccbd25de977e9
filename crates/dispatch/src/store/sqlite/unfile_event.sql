DELETE FROM filed_events WHERE (tenant_id, type, uid) IN (SELECT tenant_id, type, uid FROM events WHERE uid = ?1)
