SELECT id, tenant_id, settings, enabled, disabled_reason, failing_since, circuit_opened_at, version, deleted_at, created_at, updated_at FROM subscriptions
WHERE tenant_id = $1 AND deleted_at IS NULL AND ($2::text IS NULL OR id < $2)
ORDER BY id DESC
LIMIT $3
