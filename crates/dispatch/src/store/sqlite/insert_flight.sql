INSERT INTO flights (id, owner, until, size, deliveries, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
