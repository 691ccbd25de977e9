SELECT d.id, d.event_uid, e.id AS event_id, e.type AS event_type, d.subscription_id, d.status, d.attempts, d.deferrals, d.due_at, d.last_error, d.created_at, d.updated_at
FROM deliveries d LEFT JOIN events e ON e.uid = d.event_uid
WHERE d.id = ?2 AND d.tenant_id = ?1
