-- The first failure after a success starts the clock of auto-disable.
UPDATE subscriptions SET failing_since = CAST(unixepoch('subsec') * 1000 AS INTEGER), version = (SELECT version FROM subscription_version)
WHERE tenant_id = ?1 AND id = ?2 AND failing_since IS NULL
RETURNING id
