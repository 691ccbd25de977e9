-- A deleted id may be used again. No row: the id is taken.
INSERT INTO limit_rules (tenant_id, id, rule, version)
VALUES (?1, ?2, ?3, (SELECT version FROM limit_rule_version))
ON CONFLICT (tenant_id, id) DO UPDATE
SET rule = excluded.rule, version = excluded.version, deleted_at = NULL, created_at = CAST(unixepoch('subsec') * 1000 AS INTEGER), updated_at = CAST(unixepoch('subsec') * 1000 AS INTEGER)
WHERE limit_rules.deleted_at IS NOT NULL
RETURNING id, tenant_id, rule, version, deleted_at, created_at, updated_at
