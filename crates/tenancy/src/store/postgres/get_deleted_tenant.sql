SELECT id FROM tenants WHERE id = $1 AND deleted_at IS NOT NULL
