-- The list is the index's own, so that it is found whatever the status is.
SELECT d.id, d.fence, d.status, d.subscription_id, d.event_uid, e.type AS event_type, d.created_at, d.updated_at
FROM deliveries d INDEXED BY deliveries_by_status LEFT JOIN events e ON e.uid = d.event_uid
WHERE d.tenant_id = ?1 AND d.status = ?5 AND (d.status = 'retrying' OR d.status = 'throttled' OR d.status = 'failed' OR d.status = 'cancelled')
  AND d.id > ?2 AND d.id < ?3
ORDER BY d.id
LIMIT ?4
