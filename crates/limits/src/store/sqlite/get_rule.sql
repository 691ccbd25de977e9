SELECT id, tenant_id, rule, version, deleted_at, created_at, updated_at FROM limit_rules WHERE tenant_id = ?1 AND id = ?2 AND deleted_at IS NULL
