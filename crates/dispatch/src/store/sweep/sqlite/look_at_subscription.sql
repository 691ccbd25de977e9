SELECT d.id, d.fence, d.status, d.subscription_id, d.event_uid, e.type AS event_type, d.created_at, d.updated_at
FROM filed_deliveries f CROSS JOIN deliveries d ON d.id = f.id LEFT JOIN events e ON e.uid = d.event_uid
WHERE f.tenant_id = ?1 AND f.subscription_id = ?5 AND f.id > ?2 AND f.id < ?3
ORDER BY f.id
LIMIT ?4
