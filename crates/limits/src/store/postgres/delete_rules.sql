-- All of a tenant's.
UPDATE limit_rules
SET rule = '{}', deleted_at = now(), version = (SELECT version FROM limit_rule_version), updated_at = now()
WHERE tenant_id = $1 AND deleted_at IS NULL
