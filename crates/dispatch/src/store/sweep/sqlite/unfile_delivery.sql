-- The conditions are those of purge_delivery.sql, which follows.
DELETE FROM filed_deliveries
WHERE (tenant_id, subscription_id, id) IN (SELECT tenant_id, subscription_id, id FROM deliveries WHERE id = ?1 AND fence = ?2 AND due_at IS NULL)
