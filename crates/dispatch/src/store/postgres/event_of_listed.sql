SELECT event_uid FROM deliveries WHERE id = $2 AND tenant_id = $1
