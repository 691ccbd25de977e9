-- A tenant ($1) is deleted: a number for each of its subscriptions.
UPDATE subscription_version SET version = version + (SELECT count(*) FROM subscriptions WHERE tenant_id = $1 AND deleted_at IS NULL)
