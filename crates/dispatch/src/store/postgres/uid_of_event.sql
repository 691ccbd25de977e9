SELECT uid FROM event_keys WHERE tenant_id = $1 AND id = $2
