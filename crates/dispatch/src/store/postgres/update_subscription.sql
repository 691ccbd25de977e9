-- Switching it on again forgives its failures.
UPDATE subscriptions
SET settings = $3, enabled = $4, version = (SELECT version FROM subscription_version), updated_at = now(),
  disabled_reason = CASE WHEN $4 THEN NULL ELSE disabled_reason END,
  failing_since = CASE WHEN $4 AND NOT enabled THEN NULL ELSE failing_since END
WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL
RETURNING id, tenant_id, settings, enabled, disabled_reason, failing_since, version, deleted_at, created_at, updated_at
