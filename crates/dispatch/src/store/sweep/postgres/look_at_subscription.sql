SELECT d.id, d.fence, d.status, d.subscription_id, d.event_uid, e.type AS event_type, d.created_at, d.updated_at
FROM deliveries d LEFT JOIN events e ON e.uid = d.event_uid
WHERE d.tenant_id = $1 AND d.subscription_id = $5 AND (d.tenant_id, d.subscription_id, d.id) > ($1, $5, $2) AND (d.tenant_id, d.subscription_id, d.id) < ($1, $5, $3)
ORDER BY d.id
LIMIT $4
