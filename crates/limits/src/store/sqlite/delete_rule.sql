-- Only where the row is still at the version the caller saw, if it named one.
UPDATE limit_rules
SET rule = '{}', deleted_at = CAST(unixepoch('subsec') * 1000 AS INTEGER), version = (SELECT version FROM limit_rule_version), updated_at = CAST(unixepoch('subsec') * 1000 AS INTEGER)
WHERE tenant_id = ?1 AND id = ?2 AND deleted_at IS NULL AND (?3 IS NULL OR version = ?3)
RETURNING id
