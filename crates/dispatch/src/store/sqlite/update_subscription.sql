-- ?4 is given where someone switches it by hand: then Tidegate's own reason is no more. Switching it on again forgives
-- its failures. Nothing is changed that has changed since it was read.
UPDATE subscriptions
SET settings = ?3, enabled = coalesce(?4, enabled), version = (SELECT version FROM subscription_version), updated_at = CAST(unixepoch('subsec') * 1000 AS INTEGER),
  disabled_reason = CASE WHEN ?4 IS NULL THEN disabled_reason END,
  failing_since = CASE WHEN ?4 AND NOT enabled THEN NULL ELSE failing_since END
WHERE tenant_id = ?1 AND id = ?2 AND deleted_at IS NULL AND version = ?5
RETURNING id, tenant_id, settings, enabled, disabled_reason, failing_since, circuit_opened_at, version, deleted_at, created_at, updated_at
