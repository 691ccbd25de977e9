INSERT OR IGNORE INTO filed_events (tenant_id, type, uid) VALUES (?1, ?2, ?3)
