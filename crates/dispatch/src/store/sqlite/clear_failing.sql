UPDATE subscriptions SET failing_since = NULL, version = (SELECT version FROM subscription_version)
WHERE tenant_id = ?1 AND id = ?2 AND failing_since IS NOT NULL
RETURNING id
