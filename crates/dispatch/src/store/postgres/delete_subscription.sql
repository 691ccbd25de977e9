UPDATE subscriptions
SET enabled = FALSE, deleted_at = now(), version = (SELECT version FROM subscription_version), updated_at = now()
WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL
RETURNING id
