-- What a replica that has seen version $1 does not know yet, deletions included.
SELECT id, tenant_id, rule, version, deleted_at, created_at, updated_at FROM limit_rules WHERE version > $1 ORDER BY version LIMIT 10000
