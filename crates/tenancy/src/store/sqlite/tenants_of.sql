SELECT id FROM tenants WHERE deleted_at IS NULL AND id IN (SELECT value FROM json_each(?1))
