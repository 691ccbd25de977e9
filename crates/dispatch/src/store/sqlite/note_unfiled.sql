INSERT INTO unfiled (rowid, events, deliveries) VALUES (?1, ?2, ?3)
