SELECT DISTINCT status FROM deliveries WHERE event_uid = $1
