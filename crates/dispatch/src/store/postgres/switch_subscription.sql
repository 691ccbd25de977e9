-- By hand, so Tidegate's own reason is no more. Switching it on again forgives its failures.
UPDATE subscriptions
SET enabled = $3, version = (SELECT version FROM subscription_version), updated_at = now(), disabled_reason = NULL,
  failing_since = CASE WHEN $3 AND NOT enabled THEN NULL ELSE failing_since END
WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL
RETURNING id, tenant_id, settings, enabled, disabled_reason, failing_since, circuit_opened_at, version, deleted_at, created_at, updated_at
