DELETE FROM attempts WHERE delivery_id IN (SELECT id FROM deliveries WHERE event_uid = ?1)
