UPDATE api_keys SET last_used_at = CAST(unixepoch('subsec') * 1000 AS INTEGER) WHERE tenant_id = ?1 AND id = ?2
RETURNING id
