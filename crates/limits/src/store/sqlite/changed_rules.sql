-- What a replica that has seen ?2 of version ?1 does not know yet, deletions included.
SELECT id, tenant_id, rule, version, deleted_at, created_at, updated_at FROM limit_rules
WHERE (version, id) > (?1, ?2) ORDER BY version, id LIMIT 1000
