-- All of a tenant's.
UPDATE limit_rules
SET rule = '{}', deleted_at = CAST(unixepoch('subsec') * 1000 AS INTEGER), version = (SELECT version FROM limit_rule_version), updated_at = CAST(unixepoch('subsec') * 1000 AS INTEGER)
WHERE tenant_id = ?1 AND deleted_at IS NULL
