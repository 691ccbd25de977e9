-- Once nothing speaks of it any more.
DELETE FROM events WHERE uid = ?1 AND NOT EXISTS (SELECT 1 FROM deliveries WHERE event_uid = ?1)
