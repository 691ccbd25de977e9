-- What a replica that has seen version $1 does not know yet, deletions included. After a failover that lost the last changes the
-- versions that it has seen are given out again: then it reads everything anew.
SELECT id, tenant_id, settings, enabled, disabled_reason, failing_since, circuit_opened_at, version, deleted_at, created_at, updated_at FROM subscriptions
WHERE version > CASE WHEN $1 <= (SELECT version FROM subscription_version) THEN $1 ELSE 0 END
ORDER BY version LIMIT 1000
