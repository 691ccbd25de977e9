SELECT id, tenant_id, settings, enabled, disabled_reason, failing_since, version, deleted_at, created_at, updated_at FROM subscriptions WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL
