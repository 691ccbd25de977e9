UPDATE tenants SET name = $2 WHERE id = $1 RETURNING id, name, created_at
