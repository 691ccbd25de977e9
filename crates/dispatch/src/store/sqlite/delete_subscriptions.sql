-- All of a tenant's, each with a version of its own: replicas read changes in pages, and a page ends between two versions.
UPDATE subscriptions
SET enabled = FALSE, deleted_at = CAST(unixepoch('subsec') * 1000 AS INTEGER), version = (SELECT version FROM subscription_version) - n.number, updated_at = CAST(unixepoch('subsec') * 1000 AS INTEGER)
FROM (SELECT id AS known, row_number() OVER (ORDER BY id) - 1 AS number FROM subscriptions WHERE tenant_id = ?1 AND deleted_at IS NULL) n
WHERE tenant_id = ?1 AND id = n.known AND deleted_at IS NULL
