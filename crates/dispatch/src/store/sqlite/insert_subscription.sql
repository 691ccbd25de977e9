INSERT INTO subscriptions (tenant_id, id, settings, enabled, version)
VALUES (?1, ?2, ?3, ?4, (SELECT version FROM subscription_version))
RETURNING id, tenant_id, settings, enabled, disabled_reason, failing_since, circuit_opened_at, version, deleted_at, created_at, updated_at
