SELECT uid FROM events WHERE tenant_id = ?1 AND id = ?2
