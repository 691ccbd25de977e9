-- Revoking twice keeps the first time.
UPDATE api_keys SET revoked_at = coalesce(revoked_at, CAST(unixepoch('subsec') * 1000 AS INTEGER))
WHERE tenant_id = ?1 AND id = ?2
RETURNING id
