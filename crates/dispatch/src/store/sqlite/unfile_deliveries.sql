DELETE FROM filed_deliveries WHERE (tenant_id, subscription_id, id) IN (SELECT tenant_id, subscription_id, id FROM deliveries WHERE event_uid = ?1)
