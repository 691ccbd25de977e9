INSERT OR IGNORE INTO filed_deliveries (tenant_id, subscription_id, id) VALUES (?1, ?2, ?3)
