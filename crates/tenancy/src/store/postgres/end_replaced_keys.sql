-- Two live keys at most: whatever this key itself replaced ends now.
UPDATE api_keys SET revoked_at = now()
WHERE tenant_id = $1 AND replaced_by = $2 AND revoked_at IS NULL
