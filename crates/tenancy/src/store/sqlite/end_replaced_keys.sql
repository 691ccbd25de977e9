-- Two live keys at most: whatever this key itself replaced ends now.
UPDATE api_keys SET revoked_at = CAST(unixepoch('subsec') * 1000 AS INTEGER)
WHERE tenant_id = ?1 AND replaced_by = ?2 AND revoked_at IS NULL
