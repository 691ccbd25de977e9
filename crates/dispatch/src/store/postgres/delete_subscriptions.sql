-- All of a tenant's, each with a version of its own: replicas read changes in pages, and a page ends between two versions.
UPDATE subscriptions s
SET enabled = FALSE, deleted_at = now(), version = (SELECT version FROM subscription_version) - n.number, updated_at = now()
FROM (SELECT id, row_number() OVER (ORDER BY id) - 1 AS number FROM subscriptions WHERE tenant_id = $1 AND deleted_at IS NULL) n
WHERE s.tenant_id = $1 AND s.id = n.id AND s.deleted_at IS NULL
