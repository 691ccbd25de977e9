SELECT id, name, created_at FROM tenants WHERE id = ?1 AND deleted_at IS NULL
