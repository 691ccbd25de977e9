SELECT target, policy, created_at, used_at FROM gates
WHERE tenant_id = ?1 AND (?2 IS NULL OR target > ?2) ORDER BY target LIMIT ?3
