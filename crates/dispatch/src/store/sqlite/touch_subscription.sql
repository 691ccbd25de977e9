UPDATE subscriptions SET version = (SELECT version FROM subscription_version), updated_at = CAST(unixepoch('subsec') * 1000 AS INTEGER)
WHERE tenant_id = ?1 AND id = ?2 AND deleted_at IS NULL
RETURNING id
