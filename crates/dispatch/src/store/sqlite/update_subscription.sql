-- Switching it on again forgives its failures.
UPDATE subscriptions
SET settings = ?3, enabled = ?4, version = (SELECT version FROM subscription_version), updated_at = CAST(unixepoch('subsec') * 1000 AS INTEGER),
  disabled_reason = iif(?4, NULL, disabled_reason), failing_since = iif(?4 AND NOT enabled, NULL, failing_since)
WHERE tenant_id = ?1 AND id = ?2 AND deleted_at IS NULL
RETURNING id, tenant_id, settings, enabled, disabled_reason, failing_since, version, deleted_at, created_at, updated_at
