-- By the database's time, and by what it knows: a success since then may not have reached this process yet.
UPDATE subscriptions
SET enabled = FALSE, disabled_reason = ?3, version = (SELECT version FROM subscription_version), updated_at = CAST(unixepoch('subsec') * 1000 AS INTEGER)
WHERE tenant_id = ?1 AND id = ?2 AND enabled AND deleted_at IS NULL AND failing_since <= CAST(unixepoch('subsec') * 1000 AS INTEGER) - 5 * 24 * 60 * 60 * 1000
RETURNING id, tenant_id, settings, enabled, disabled_reason, failing_since, circuit_opened_at, version, deleted_at, created_at, updated_at
