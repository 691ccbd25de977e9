DELETE FROM api_keys WHERE tenant_id = ?1
