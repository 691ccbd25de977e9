-- Its secrets change. Nothing is changed that has changed since it was read.
UPDATE subscriptions SET version = (SELECT version FROM subscription_version), updated_at = CAST(unixepoch('subsec') * 1000 AS INTEGER)
WHERE tenant_id = ?1 AND id = ?2 AND deleted_at IS NULL AND version = ?3
RETURNING id, tenant_id, settings, enabled, disabled_reason, failing_since, circuit_opened_at, version, deleted_at, created_at, updated_at
