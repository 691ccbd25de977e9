SELECT id, tenant_id, name, hint, scopes, created_at, expires_at, revoked_at, last_used_at, replaced_by
FROM api_keys
WHERE tenant_id = ?1 AND (?2 IS NULL OR id < ?2)
ORDER BY id DESC
LIMIT ?3
