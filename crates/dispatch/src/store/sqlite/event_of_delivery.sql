SELECT id, type, created_at, data FROM events WHERE uid = ?1
