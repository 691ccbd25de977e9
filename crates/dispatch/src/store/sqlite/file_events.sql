-- As file_deliveries.sql.
INSERT OR IGNORE INTO filed_events (tenant_id, type, uid)
SELECT e.tenant_id, e.type, e.uid
FROM unfiled u CROSS JOIN json_each(u.events) fresh CROSS JOIN events e ON e.uid = fresh.value
ORDER BY e.tenant_id, e.type, e.uid
