SELECT id FROM tenants WHERE id IN (SELECT value FROM json_each(?1))
