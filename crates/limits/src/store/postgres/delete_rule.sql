-- Only where the row is still at the version the caller saw, if it named one.
UPDATE limit_rules
SET rule = '{}', deleted_at = now(), version = (SELECT version FROM limit_rule_version), updated_at = now()
WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL AND ($3::bigint IS NULL OR version = $3)
RETURNING id
