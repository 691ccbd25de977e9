INSERT INTO unfiled (events, deliveries) VALUES (?1, ?2)
