UPDATE subscriptions SET circuit_opened_at = NULL, version = (SELECT version FROM subscription_version)
WHERE tenant_id = ?1 AND id = ?2 AND circuit_opened_at IS NOT NULL AND deleted_at IS NULL
RETURNING id
