UPDATE tenants SET name = $2 WHERE id = $1 AND deleted_at IS NULL RETURNING id, name, created_at
