-- What a replica that has seen version ?1 does not know yet, deletions included.
SELECT id, tenant_id, settings, enabled, disabled_reason, failing_since, circuit_opened_at, version, deleted_at, created_at, updated_at FROM subscriptions WHERE version > ?1 ORDER BY version LIMIT 1000
