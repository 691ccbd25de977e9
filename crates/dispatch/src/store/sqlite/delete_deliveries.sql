DELETE FROM deliveries WHERE event_uid = ?1
