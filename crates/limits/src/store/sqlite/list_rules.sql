SELECT id, tenant_id, rule, version, deleted_at, created_at, updated_at FROM limit_rules
WHERE tenant_id = ?1 AND deleted_at IS NULL AND (?2 IS NULL OR id < ?2)
ORDER BY id DESC
LIMIT ?3
