-- It counts as a use, so that the row outlasts every replica that has not heard of it.
UPDATE gates SET policy = NULL, version = (SELECT version FROM gate_version), used_at = CAST(unixepoch('subsec') * 1000 AS INTEGER)
WHERE tenant_id = ?1 AND target = ?2 AND policy IS NOT NULL
RETURNING target
