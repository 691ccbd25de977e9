SELECT id, at, tenant_id, actor, action, target FROM audit
WHERE (?1 IS NULL OR tenant_id = ?1) AND (?2 IS NULL OR id < ?2)
ORDER BY id DESC
LIMIT ?3
